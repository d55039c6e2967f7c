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
	Currency       string
	Phase          DebitPhase // PhaseAttempt, or PhaseClose once AnswerWithin is over
	// InDoubt says that an earlier worker may have made a debit call whose answer is not known.
	InDoubt   bool
	Deferrals int // tries so far that brought no final answer
}

// RailKey is the name under which the rail knows the transaction's debit. It derives from the transaction's identity
// alone, so that no attempt can ever go out under another one.
func (t *ClaimedTransaction) RailKey() string { return t.ID.String() }

// TransactionResult is what a worker has learnt about a transaction that it claimed. Exactly one of three things: a final
// status; Release, nothing was debited and it may be tried again; or neither, it is still in doubt.
type TransactionResult struct {
	Status     TransactionStatus // "" if not final
	Reason     RowOutcome        // of Declined: why
	Release    bool
	RetryAfter time.Duration // until it is due again, if it is not final
	Calls      int           // corrects the count of debit calls, as RowResult's does
}

// FinishedTransaction is what a finishing transaction did.
type FinishedTransaction struct {
	Ended bool   // with the result's status; false also if somebody else had ended it before
	Task  TaskID // that tells the partner; zero: none
}
