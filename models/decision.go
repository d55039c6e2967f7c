package models

// DebitDecision is an operator's decision on a debit whose outcome the rail cannot tell.
type DebitDecision bool

// The decisions. An operator bases them on the gateway's books or the bank's.
const (
	DecidedDebited    DebitDecision = true  // the customer's account was debited, once
	DecidedNotDebited DebitDecision = false // nothing was debited, and the key will never be debited
)

// String returns the decision's name in the audit log.
func (d DebitDecision) String() string {
	if d == DecidedDebited {
		return "debited"
	}
	return "notDebited"
}
