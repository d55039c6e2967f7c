package models

import "time"

// AnswerWithin is how long after its start a transaction is retried while the rail cannot answer.
// Afterwards no debit begins: the transaction is looked up and cancelled on the rail.
const AnswerWithin = time.Minute

// StartedTransaction is the result of StartTransaction.
type StartedTransaction struct {
	ID       TransactionID
	Task     TaskID // makes the debit; zero if Replayed is set
	Replayed bool   // an earlier call for the same customer has started the transaction
}

// ClaimedTransaction is a transaction that a worker has claimed.
type ClaimedTransaction struct {
	Task           TaskID
	Lease          LeaseToken
	Claimed        bool // false: another worker has it, it is not due, or it waits for an operator
	SiteID         SiteID
	OrganisationID OrganisationID
	IntentID       PaymentIntentID
	ID             TransactionID
	TraceID        TraceID
	Account        DebitAccount // of the customer who pays; LinkID is zero
	Charge         Amount       // the amount to debit in minor units; 0: nothing to debit
	Amount         Amount       // of the payment intent in minor units, before discounts
	Currency       string
	// ClosingAs is the status that ends the payment intent if the rail confirms that it was not
	// paid; "" once a customer has begun to pay. While it is set, the database has no transaction,
	// and may have lost one: ID, Charge and the customer are zero.
	ClosingAs TransactionStatus
	// Phase is PhaseAttempt, or PhaseClose: AnswerWithin is over, ClosingAs is set, or an operator
	// has cancelled the work of an earlier epoch.
	Phase DebitPhase
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
	Reason RowOutcome        // why it was declined, with TransactionDeclined; else ""
	// FromRail says that the status follows from the rail's answer about the key, or from an
	// operator's decision. Such a status holds even if the database has lost commits since the
	// claim.
	FromRail bool
	// Found is the payment of a closing payment intent that the rail has made and the database has
	// lost; zero: none.
	Found      FoundPayment
	Release    bool
	Answered   bool          // the rail answered a call about the key
	Alert      string        // the kind of alert that the result raises; "" for none
	RetryAfter time.Duration // delay until the transaction is due again, if Status is ""
	Calls      int           // correction of the count of debit calls; see RowResult.Calls
}

// FoundPayment is the rail's record of a payment that the database lost.
type FoundPayment struct {
	AgreementID string
	Charge      Amount // the debited amount in minor units
}

// FinishedTransaction is the effect of FinishTransaction.
type FinishedTransaction struct {
	Ended bool   // this call has ended the transaction; false also if it had ended before
	Task  TaskID // the task that notifies the partner; zero: none
}
