package models

// BatchState is the state of a batch as the partner sees it.
type BatchState string

// The batch states. Settled is final.
const (
	BatchInProgress BatchState = "inProgress"
	BatchSettled    BatchState = "settled"
)

// RowState is the state of a row.
type RowState string

// The row states. A row is inProgress from its claim until the rail's answer is recorded. During
// that time it is in doubt.
const (
	RowPending    RowState = "pending"
	RowInProgress RowState = "inProgress"
	RowSettled    RowState = "settled"
)

var rowTransitions = transitions[RowState]{
	RowPending: {
		RowInProgress, // a worker claims it
		RowSettled,    // cancelled by the partner, or past its deadline
	},
	RowInProgress: {
		RowPending, // the rail answered that nothing was debited and the debit may be repeated
		RowSettled,
	},
	RowSettled: {},
}

// CanBecome reports whether a row may move from s to another state.
func (s RowState) CanBecome(to RowState) bool { return rowTransitions.allow(s, to) }

// RowOutcome is the result of a settled row.
type RowOutcome string

// The outcomes. Except for OutcomeSucceeded and OutcomeUnconfirmed, an outcome means that nothing
// was debited. OutcomeUnconfirmed means that the rail had not reported the outcome at the deadline.
const (
	OutcomeSucceeded          RowOutcome = "succeeded"
	OutcomeCustomerNotActive  RowOutcome = "customerNotActive"
	OutcomeInsufficientFunds  RowOutcome = "insufficientFunds"
	OutcomeAccountUnavailable RowOutcome = "accountUnavailable"
	OutcomeLimitExceeded      RowOutcome = "limitExceeded"
	OutcomeDeclinedByCustomer RowOutcome = "declinedByCustomer"
	OutcomeDeclined           RowOutcome = "declined"
	OutcomeTimedOut           RowOutcome = "timedOut"
	OutcomeUnconfirmed        RowOutcome = "unconfirmed"
	OutcomeCancelled          RowOutcome = "cancelled"
)

// RowOutcomes lists every outcome.
var RowOutcomes = []RowOutcome{
	OutcomeSucceeded, OutcomeCustomerNotActive, OutcomeInsufficientFunds, OutcomeAccountUnavailable, OutcomeLimitExceeded,
	OutcomeDeclinedByCustomer, OutcomeDeclined, OutcomeTimedOut, OutcomeUnconfirmed, OutcomeCancelled,
}

// Retryable reports whether the same debit may succeed in a later batch. An unconfirmed row is
// never retryable: it may have been debited.
func (o RowOutcome) Retryable() bool {
	switch o {
	case OutcomeInsufficientFunds, OutcomeLimitExceeded, OutcomeAccountUnavailable, OutcomeTimedOut:
		return true
	default:
		return false
	}
}
