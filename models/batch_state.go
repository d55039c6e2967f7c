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

// rowTransitions are the allowed transitions of a row: from, to. Missing pairs are not allowed.
var rowTransitions = map[RowState]map[RowState]bool{
	RowPending: {
		RowInProgress: true, // a worker claims it
		RowSettled:    true, // cancelled by the partner, or past its deadline
	},
	RowInProgress: {
		RowInProgress: true, // another worker takes over, or the answer is still unknown
		RowPending:    true, // the rail answered that nothing was debited and the debit may be repeated
		RowSettled:    true,
	},
	RowSettled: {},
}

// CanBecome reports whether a row may move from s to the state.
func (s RowState) CanBecome(to RowState) bool { return rowTransitions[s][to] }

// RowOutcome is the result of a settled row.
type RowOutcome string

// The outcomes. Except for OutcomeSucceeded and OutcomeUnconfirmed, an outcome means that nothing
// was debited. OutcomeUnconfirmed means that the rail has not said.
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
