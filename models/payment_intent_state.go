package models

// IntentState is the state of a payment intent as the partner sees it.
type IntentState string

// The states of a payment intent.
const (
	IntentCreated IntentState = "created" // waiting for a customer; over at expiresAt
	IntentPending IntentState = "pending" // a customer has begun to pay: neither expiry nor cancellation ends it any more
	IntentFinal   IntentState = "final"   // the transaction status says how it ended
)

// IntentStates are all states, in the order of a payment intent's life.
var IntentStates = []IntentState{IntentCreated, IntentPending, IntentFinal}

// intentMoves is the whole truth about a payment intent's life. A pair that is not here never happens.
var intentMoves = map[IntentState][]IntentState{
	IntentCreated: {IntentPending, IntentFinal},
	IntentPending: {IntentFinal},
	IntentFinal:   {},
}

// CanBecome reports whether a payment intent may move from s to next.
func (s IntentState) CanBecome(next IntentState) bool {
	for _, to := range intentMoves[s] {
		if to == next {
			return true
		}
	}
	return false
}

// TransactionStatus is how a payment intent ended. All statuses are final.
type TransactionStatus string

// The statuses, in the words of the wire.
const (
	TransactionSettled   TransactionStatus = "Settled"   // paid
	TransactionDeclined  TransactionStatus = "Declined"  // refused by the account or the customer; nothing was debited
	TransactionFailed    TransactionStatus = "Failed"    // the rail could not do it, and has confirmed that nothing was debited
	TransactionCancelled TransactionStatus = "Cancelled" // by the partner, before anybody began to pay
	TransactionExpired   TransactionStatus = "Expired"   // nobody began to pay in time
)

// TransactionStatuses are all statuses.
var TransactionStatuses = []TransactionStatus{
	TransactionSettled, TransactionDeclined, TransactionFailed, TransactionCancelled, TransactionExpired,
}

// endings are the statuses with which a payment intent can end from each state. What a customer has begun ends by the
// rail's word alone, what nobody has begun never by it.
var endings = map[IntentState][]TransactionStatus{
	IntentCreated: {TransactionCancelled, TransactionExpired},
	IntentPending: {TransactionSettled, TransactionDeclined, TransactionFailed},
	IntentFinal:   {},
}

// CanEndAs reports whether a payment intent may end with the status from s.
func (s IntentState) CanEndAs(status TransactionStatus) bool {
	for _, end := range endings[s] {
		if end == status {
			return true
		}
	}
	return false
}

// HasTransaction reports whether an intent that ended so had a transaction.
func (s TransactionStatus) HasTransaction() bool { return IntentPending.CanEndAs(s) }
