package models

import "time"

// AnswerWithin is how long after its start a transaction is retried while the rail cannot answer.
// Afterwards it is looked up and cancelled on the rail.
const AnswerWithin = time.Minute

// StartedTransaction is the answer to the customer app.
type StartedTransaction struct {
	ID       TransactionID
	Task     TaskID // makes the debit; zero if the transaction had been started before
	Replayed bool   // the same customer had started it before
}

// ClaimedTransaction is a transaction that a worker has claimed.
type ClaimedTransaction struct {
	Task           TaskID
	Lease          LeaseToken
	Claimed        bool // otherwise another worker has it, or it is not due
	SiteID         SiteID
	OrganisationID OrganisationID
	IntentID       PaymentIntentID
	ID             TransactionID
	TraceID        TraceID
	Account        DebitAccount // of the customer who pays; it has no link
	Charge         Amount       // 0: nothing to debit
	Amount         Amount       // of the payment intent, before discounts
	Currency       string
	// ClosingAs is the status that ends the payment intent if the rail confirms that it was not
	// paid; "" once a customer has begun to pay. While it is set, the database has no transaction,
	// and may have lost one: ID, Charge and the customer are zero.
	ClosingAs TransactionStatus
	Phase     DebitPhase // PhaseAttempt, or PhaseClose once AnswerWithin is over
	// InDoubt says that an earlier debit call may lack its answer.
	InDoubt bool
	// Forgotten says that RailMemory has passed since the last call: "never seen" proves nothing.
	Forgotten bool
	Deferrals int    // number of tries so far without a final answer
	Epoch     int    // of the database, at the claim
	ClaimedAt Millis // service time of the claim
}

// RailKey returns the rail key of the payment intent's one debit.
func (t *ClaimedTransaction) RailKey() string { return PaymentRailKey(t.IntentID) }

// TransactionResult is a worker's result for a transaction that it claimed. Exactly one of three
// cases holds: Status is final; Release is set (nothing was debited, and it may be tried again); or
// neither, and it is still in doubt.
type TransactionResult struct {
	Status TransactionStatus // "" if not final
	Reason RowOutcome        // of Declined: why
	// FromRail says that the status follows from the rail's answer about the key, or from an
	// operator's decision instead. It holds even if the database has lost commits since the
	// claim.
	FromRail bool
	// Found is a payment that the rail made and the database lost, of a closing payment intent.
	Found      FoundPayment
	Release    bool
	Answered   bool          // the rail answered a call about the key
	Alert      string        // the kind of alert that the result raises; "" for none
	RetryAfter time.Duration // until it is due again, if it is not final
	Calls      int           // correction of the count of debit calls; see RowResult.Calls
}

// FoundPayment is the rail's record of a payment that the database lost.
type FoundPayment struct {
	AgreementID string
	Charge      Amount
}

// FinishedTransaction is the effect of finishing a transaction.
type FinishedTransaction struct {
	Ended bool   // with the result's status; false also if it had ended before
	Task  TaskID // notifies the partner; zero: none
}
