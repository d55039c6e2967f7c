package models

import "time"

// AnswerWithin is how long after its start a transaction whose rail cannot answer is tried again; then it is looked up and
// cancelled on the rail.
const AnswerWithin = time.Minute

// StartedTransaction is what the customer app is told.
type StartedTransaction struct {
	ID       TransactionID
	Task     TaskID // that debits; zero if the transaction had been started before
	Replayed bool   // the same customer had started it before
}

// ClaimedTransaction is a transaction that a worker has claimed.
type ClaimedTransaction struct {
	Task           TaskID
	Lease          LeaseToken
	Held           bool // claimed; otherwise another worker holds it, or it is not due
	SiteID         SiteID
	OrganisationID OrganisationID
	IntentID       PaymentIntentID
	ID             TransactionID
	TraceID        TraceID
	Party          Party
	Charge         Amount // 0: nothing to debit
	Amount         Amount // of the payment intent, before discounts
	Currency       string
	// ClosingAs says how the payment intent ends if the rail confirms that it was not paid; "" if a customer has begun
	// to pay. The database has no transaction then, and may have lost one: ID, Party and Charge are zero.
	ClosingAs TransactionStatus
	Phase     DebitPhase // PhaseAttempt, or PhaseClose once AnswerWithin is over
	// InDoubt says that an earlier worker may have made a debit call whose answer is not known.
	InDoubt bool
	// Forgotten says that RailMemory is over since the last call: that the rail has never seen the key proves nothing.
	Forgotten bool
	Deferrals int    // tries so far that brought no final answer
	Epoch     int    // of the database, at the claim
	ClaimedAt Millis // service time of the claim
}

// RailKey is the name under which the rail knows the payment intent's one debit.
func (t *ClaimedTransaction) RailKey() string { return PaymentRailKey(t.IntentID) }

// TransactionResult is what a worker has learnt about a transaction that it claimed. Exactly one of three things: a final
// status; Release, nothing was debited and it may be tried again; or neither, it is still in doubt.
type TransactionResult struct {
	Status TransactionStatus // "" if not final
	Reason RowOutcome        // of Declined: why
	// FromRail says that the status follows from what the rail said about the key, and so holds whatever the database
	// has lost since the claim.
	FromRail bool
	// Found is the payment that the rail made and the database has lost: of a payment intent that was closing.
	Found      FoundPayment
	Release    bool
	Called     bool          // the rail answered a call about the key
	Alert      string        // the kind of alert that the result raises; "" for none
	RetryAfter time.Duration // until it is due again, if it is not final
	Calls      int           // corrects the count of debit calls, as RowResult's does
}

// FoundPayment is what the rail knows of a payment that the database has lost.
type FoundPayment struct {
	AgreementID string
	Charge      Amount
}

// FinishedTransaction is what a finishing transaction did.
type FinishedTransaction struct {
	Ended bool   // with the result's status; false also if somebody else had ended it before
	Task  TaskID // that tells the partner; zero: none
}
