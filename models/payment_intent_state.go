package models

import "slices"

// IntentState is the state of a payment intent as the partner sees it.
type IntentState string

// The states of a payment intent.
const (
	IntentCreated IntentState = "created" // waiting for a customer; over at expiresAt
	IntentPending IntentState = "pending" // a payment has begun: expiry and cancellation no longer end the intent
	IntentFinal   IntentState = "final"   // the transaction status says how it ended
)

// IntentStates are all states, in the order of a payment intent's life.
var IntentStates = []IntentState{IntentCreated, IntentPending, IntentFinal}

var intentTransitions = transitions[IntentState]{
	IntentCreated: {IntentPending, IntentFinal},
	IntentPending: {IntentFinal},
	IntentFinal:   {},
}

// CanBecome reports whether a payment intent may move from s to another state.
func (s IntentState) CanBecome(to IntentState) bool { return intentTransitions.allow(s, to) }

// TransactionStatus is the result of a payment intent. All statuses are final.
type TransactionStatus string

// The statuses, as on the wire.
const (
	TransactionSettled  TransactionStatus = "Settled"  // paid
	TransactionDeclined TransactionStatus = "Declined" // refused by the account or the customer; nothing was debited
	// the rail could not debit, and has confirmed that nothing was debited
	TransactionFailed    TransactionStatus = "Failed"
	TransactionCancelled TransactionStatus = "Cancelled" // cancelled by the partner before a payment began
	TransactionExpired   TransactionStatus = "Expired"   // no payment began in time
)

// TransactionStatuses are all statuses.
var TransactionStatuses = []TransactionStatus{
	TransactionSettled, TransactionDeclined, TransactionFailed, TransactionCancelled, TransactionExpired,
}

// endings are the statuses that can end a payment intent in each state. Only the rail's answer ends
// a pending intent, and it never ends a created one. A pending intent that closes unpaid ends as
// its ClaimedTransaction.ClosingAs instead.
var endings = map[IntentState][]TransactionStatus{
	IntentCreated: {TransactionCancelled, TransactionExpired},
	IntentPending: {TransactionSettled, TransactionDeclined, TransactionFailed},
	IntentFinal:   {},
}

// CanEndAs reports whether a payment intent may end with the status from s.
func (s IntentState) CanEndAs(status TransactionStatus) bool {
	return slices.Contains(endings[s], status)
}

// HasTransaction reports whether an intent that ended with the status had a transaction.
func (s TransactionStatus) HasTransaction() bool { return IntentPending.CanEndAs(s) }
