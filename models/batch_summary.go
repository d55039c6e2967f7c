package models

// BatchSummary is a batch without its rows, as partners see it in answers and events.
type BatchSummary struct {
	BatchReference  string       `json:"batchReference"`
	RetryOf         string       `json:"retryOf,omitempty"` // the reference of the batch that this batch retries
	State           BatchState   `json:"state"`
	SubmittedAt     Millis       `json:"submittedAt"`
	SettleBy        Millis       `json:"settleBy"`
	SettledAt       Millis       `json:"settledAt,omitempty"`
	RowCount        int          `json:"rowCount"`
	TotalAmount     Amount       `json:"totalAmount"`
	Counts          CountSummary `json:"counts"`
	SucceededAmount Amount       `json:"succeededAmount"`
}

// CountSummary is BatchCounts as partners see it.
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
		BatchReference: b.Reference, RetryOf: b.RetryOf, State: b.State, SubmittedAt: b.SubmittedAt, SettleBy: b.SettleBy,
		SettledAt: b.SettledAt, RowCount: b.Counts.Rows(), TotalAmount: b.TotalAmount, Counts: CountSummary(b.Counts),
		SucceededAmount: b.SucceededAmount,
	}
}

// BatchRowSummary is a row as partners see it in answers and events.
type BatchRowSummary struct {
	RowReference      string     `json:"rowReference"`
	CustomerReference string     `json:"customerReference"`
	Amount            Amount     `json:"amount"`
	State             RowState   `json:"state"`
	Outcome           RowOutcome `json:"outcome,omitempty"`
	CorrectedOutcome  RowOutcome `json:"correctedOutcome,omitempty"`
	SettledAt         Millis     `json:"settledAt,omitempty"`
	Attempts          int        `json:"attempts"`
	NextAttemptAt     Millis     `json:"nextAttemptAt,omitempty"`
}

// Summary returns the row as partners see it.
func (r *BatchRow) Summary() BatchRowSummary {
	return BatchRowSummary{
		RowReference: r.RowReference, CustomerReference: r.CustomerReference, Amount: r.Amount, State: r.State,
		Outcome: r.Outcome, CorrectedOutcome: r.CorrectedOutcome, SettledAt: r.SettledAt, Attempts: r.Attempts,
		NextAttemptAt: r.NextAttemptAt,
	}
}
