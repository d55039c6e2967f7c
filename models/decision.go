package models

import "fmt"

// DebitDecision is an operator's decision on a debit whose outcome the rail cannot tell.
type DebitDecision string

// The decisions, as in the audit log. An operator bases them on the gateway's books or the bank's.
const (
	DecidedDebited    DebitDecision = "debited"    // the customer's account was debited, once
	DecidedNotDebited DebitDecision = "notDebited" // nothing was debited, and the key will never be debited
)

// debited reports whether the debit was made. Any other value than the two decisions is an error.
func (d DebitDecision) debited() (bool, error) {
	if d != DecidedDebited && d != DecidedNotDebited {
		return false, fmt.Errorf("models: %q is neither %q nor %q", d, DecidedDebited, DecidedNotDebited)
	}
	return d == DecidedDebited, nil
}
