package models

// BatchSummary is a batch without its rows, as partners see it in answers and events.
type BatchSummary struct {
	BatchReference  string       `json:"batchReference"`
	RetryOf         string       `json:"retryOf,omitempty"` // the reference of the batch that this batch retries
	State           BatchState   `json:"state"`
	SubmittedAt     Millis       `json:"submittedAt"`
	SettleBy        Millis       `json:"settleBy"`            // the deadline
	SettledAt       Millis       `json:"settledAt,omitempty"` // 0 until settled
	RowCount        int          `json:"rowCount"`
	TotalAmount     Amount       `json:"totalAmount"` // of all rows
	Counts          CountSummary `json:"counts"`
	SucceededAmount Amount       `json:"succeededAmount"` // of the rows that succeeded
}

// CountSummary counts a batch's rows by state, and its settled rows by success, as partners see
// them. It has the fields of BatchCounts.
type CountSummary struct {
	Pending    int `json:"pending"`
	InProgress int `json:"inProgress"`
	Settled    int `json:"settled"`
	Succeeded  int `json:"succeeded"`
	Failed     int `json:"failed"`
}

// Summary returns the batch as partners see it, without its rows.
func (b *Batch) Summary() BatchSummary {
	return BatchSummary{
		BatchReference: b.Reference, RetryOf: b.RetryOf, State: b.State, SubmittedAt: b.SubmittedAt,
		SettleBy: b.SettleBy, SettledAt: b.SettledAt, RowCount: b.Counts.Rows(), TotalAmount: b.TotalAmount,
		Counts: CountSummary(b.Counts), SucceededAmount: b.SucceededAmount,
	}
}

// BatchRowSummary is a row of a batch, as partners see it in answers and events.
type BatchRowSummary struct {
	RowReference      string     `json:"rowReference"`
	CustomerReference string     `json:"customerReference"`
	Amount            Amount     `json:"amount"`
	State             RowState   `json:"state"`
	Outcome           RowOutcome `json:"outcome,omitempty"`          // "" until settled
	CorrectedOutcome  RowOutcome `json:"correctedOutcome,omitempty"` // "" unless learned after settlement
	SettledAt         Millis     `json:"settledAt,omitempty"`        // 0 until settled
	Attempts          int        `json:"attempts"`                   // debit calls made
	NextAttemptAt     Millis     `json:"nextAttemptAt,omitempty"`    // 0: none is planned
}

// Summary returns the row as partners see it.
func (r *BatchRow) Summary() BatchRowSummary {
	return BatchRowSummary{
		RowReference: r.RowReference, CustomerReference: r.CustomerReference, Amount: r.Amount, State: r.State,
		Outcome: r.Outcome, CorrectedOutcome: r.CorrectedOutcome, SettledAt: r.SettledAt, Attempts: r.Attempts,
		NextAttemptAt: r.NextAttemptAt,
	}
}
