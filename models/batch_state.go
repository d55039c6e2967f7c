package models

// BatchState is the state of a batch as the partner sees it.
type BatchState string

// The batch states. A batch is settled with its last row, and stays so.
const (
	BatchInProgress BatchState = "inProgress"
	BatchSettled    BatchState = "settled"
)

// ParseBatchState reads the wire form.
func ParseBatchState(s string) (BatchState, bool) {
	b := BatchState(s)
	return b, b == BatchInProgress || b == BatchSettled
}

// RowState is the state of a row.
type RowState string

// The row states. A row is inProgress from the moment a debit call may be made until its answer is known: all that time
// it is in doubt, and only the rail's word ends that.
const (
	RowPending    RowState = "pending"
	RowInProgress RowState = "inProgress"
	RowSettled    RowState = "settled"
)

// rowTransitions is the truth table of rows: from, to, allowed. What is missing is not allowed.
var rowTransitions = map[RowState]map[RowState]bool{
	RowPending: {
		RowInProgress: true, // a worker claims it
		RowSettled:    true, // cancelled by the partner, or its deadline passed
	},
	RowInProgress: {
		RowInProgress: true, // another worker takes over, or the answer is still unknown
		RowPending:    true, // the rail said that nothing was debited and to come again
		RowSettled:    true,
	},
	RowSettled: {},
}

// CanBecome reports whether a row may move from s to the state.
func (s RowState) CanBecome(to RowState) bool { return rowTransitions[s][to] }

// RowOutcome is how a settled row ended.
type RowOutcome string

// The outcomes. All but OutcomeSucceeded mean that nothing was debited; OutcomeUnconfirmed means that the rail has not
// said so.
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

// Retryable reports whether the same debit may succeed in a later batch. An unconfirmed one never is: it may have been
// debited.
func (o RowOutcome) Retryable() bool {
	switch o {
	case OutcomeInsufficientFunds, OutcomeLimitExceeded, OutcomeAccountUnavailable, OutcomeTimedOut:
		return true
	default:
		return false
	}
}
