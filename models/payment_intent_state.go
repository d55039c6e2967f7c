package models

import "slices"

// IntentState is the state of a payment intent as the partner sees it.
type IntentState string

// The states of a payment intent.
const (
	// IntentCreated: no customer has begun to pay. The state ends at ExpiresAt at the latest.
	IntentCreated IntentState = "created"
	// IntentPending: a payment has begun, or may have begun in an earlier epoch. Neither expiry nor
	// cancellation ends the intent without the rail's answer.
	IntentPending IntentState = "pending"
	// IntentFinal: the intent has ended; its TransactionStatus says how.
	IntentFinal IntentState = "final"
)

// IntentStates lists every state, in the order of a payment intent's life.
var IntentStates = []IntentState{IntentCreated, IntentPending, IntentFinal}

// intentTransitions holds the states that each state may become.
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
	// TransactionFailed: the rail could not debit, and has confirmed that nothing was debited.
	TransactionFailed    TransactionStatus = "Failed"
	TransactionCancelled TransactionStatus = "Cancelled" // cancelled by the partner before a payment began
	TransactionExpired   TransactionStatus = "Expired"   // no payment began in time
)

// TransactionStatuses lists every status.
var TransactionStatuses = []TransactionStatus{
	TransactionSettled, TransactionDeclined, TransactionFailed, TransactionCancelled, TransactionExpired,
}

// endings holds the statuses with which a payment intent can end from each state. Only the rail's
// answer ends a pending intent, and it never ends a created one. One exception is not listed: a
// pending intent with a ClaimedTransaction.ClosingAs ends with that status if it was not paid.
var endings = map[IntentState][]TransactionStatus{
	IntentCreated: {TransactionCancelled, TransactionExpired},
	IntentPending: {TransactionSettled, TransactionDeclined, TransactionFailed},
	IntentFinal:   {},
}

// CanEndAs reports whether a payment intent in state s may end with the status.
func (s IntentState) CanEndAs(status TransactionStatus) bool {
	return slices.Contains(endings[s], status)
}

// HasTransaction reports whether an intent that ended with the status had a transaction.
func (s TransactionStatus) HasTransaction() bool { return IntentPending.CanEndAs(s) }
