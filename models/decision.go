package models

import "fmt"

// DebitDecision is an operator's decision on whether a debit was made. It is needed if the rail
// cannot tell.
type DebitDecision string

// The decisions, as the audit log shows them. An operator bases them on the records of the gateway
// or the bank.
const (
	// DecidedDebited: the customer's account was debited, once.
	DecidedDebited DebitDecision = "debited"
	// DecidedNotDebited: nothing was debited, and nothing will be debited under the rail key.
	DecidedNotDebited DebitDecision = "notDebited"
)

// debited reports whether the debit was made. A value that is neither decision is an error.
func (d DebitDecision) debited() (bool, error) {
	if d != DecidedDebited && d != DecidedNotDebited {
		return false, fmt.Errorf("models: %q is neither %q nor %q", d, DecidedDebited, DecidedNotDebited)
	}
	return d == DecidedDebited, nil
}
