package models

// DebitDecision is an operator's word on a debit whose outcome the rail cannot tell.
type DebitDecision bool

// The decisions. An operator takes them from the gateway's own books, or from the bank.
const (
	DecidedDebited    DebitDecision = true  // the customer's account was debited, once
	DecidedNotDebited DebitDecision = false // nothing was debited, and nothing will be under the key
)
