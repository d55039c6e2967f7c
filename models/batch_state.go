package models

// BatchState is the state of a batch.
type BatchState string

// The states of a batch.
const (
	BatchInProgress BatchState = "inProgress" // at least one row is not settled
	BatchSettled    BatchState = "settled"    // final: every row is settled
)

// RowState is the state of a row of a batch.
type RowState string

// The states of a row. A row in progress is in doubt: the rail may have debited it, and the answer
// is not recorded yet.
const (
	RowPending    RowState = "pending"    // no worker holds the row, and no known call can debit it
	RowInProgress RowState = "inProgress" // from a worker's claim until the rail's answer is recorded
	RowSettled    RowState = "settled"    // final: the row has an outcome
)

// rowTransitions holds the states that a row may move to from each state.
var rowTransitions = transitions[RowState]{
	RowPending: {
		RowInProgress, // a worker claims the row
		RowSettled,    // the row is cancelled, or its time for attempts is over
	},
	RowInProgress: {
		RowPending, // nothing was debited, and the debit may be tried again
		RowSettled, // the outcome is known, or the deadline has passed
	},
	RowSettled: {},
}

// CanBecome reports whether a row may move from state s to state to.
func (s RowState) CanBecome(to RowState) bool { return rowTransitions.allow(s, to) }

// RowOutcome is the result of a settled row.
type RowOutcome string

// The outcomes. Except for OutcomeSucceeded and OutcomeUnconfirmed, an outcome means that nothing
// was debited.
const (
	OutcomeSucceeded          RowOutcome = "succeeded"          // the customer was debited, once
	OutcomeCustomerNotActive  RowOutcome = "customerNotActive"  // unknown customer, or not linked any more
	OutcomeInsufficientFunds  RowOutcome = "insufficientFunds"  // the account has too little money
	OutcomeAccountUnavailable RowOutcome = "accountUnavailable" // closed or frozen, or no such agreement
	OutcomeLimitExceeded      RowOutcome = "limitExceeded"      // the amount is above the customer's limit
	OutcomeDeclinedByCustomer RowOutcome = "declinedByCustomer" // the customer refused
	OutcomeDeclined           RowOutcome = "declined"           // the bank refused, without a reason
	OutcomeTimedOut           RowOutcome = "timedOut"           // not debited before the deadline
	OutcomeUnconfirmed        RowOutcome = "unconfirmed"        // in doubt at the deadline, or undecidable
	OutcomeCancelled          RowOutcome = "cancelled"          // the batch was cancelled before the debit
)

// RowOutcomes lists every outcome.
var RowOutcomes = []RowOutcome{
	OutcomeSucceeded, OutcomeCustomerNotActive, OutcomeInsufficientFunds, OutcomeAccountUnavailable,
	OutcomeLimitExceeded, OutcomeDeclinedByCustomer, OutcomeDeclined, OutcomeTimedOut, OutcomeUnconfirmed,
	OutcomeCancelled,
}

// Retryable reports whether the same debit may succeed in a later batch. OutcomeUnconfirmed is not
// retryable: the row may have been debited.
func (o RowOutcome) Retryable() bool {
	switch o {
	case OutcomeInsufficientFunds, OutcomeLimitExceeded, OutcomeAccountUnavailable, OutcomeTimedOut:
		return true
	default:
		return false
	}
}
