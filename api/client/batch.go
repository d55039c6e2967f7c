package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// MaxBatchRows is the maximum number of rows in a batch.
const MaxBatchRows = 1000

// Batch is a batch to submit.
type Batch struct {
	BatchReference string `json:"batchReference"`
	Rows           []Row  `json:"rows"`
}

// Row is a debit of a batch.
type Row struct {
	CustomerReference string `json:"customerReference"`
	RowReference      string `json:"rowReference"`
	Amount            int64  `json:"amount"` // minor units of the Site's currency
}

// Receipt confirms a submission. Times are in Unix ms.
type Receipt struct {
	BatchReference string `json:"batchReference"`
	State          string `json:"state"` // always StateInProgress, the state at submission
	RowCount       int    `json:"rowCount"`
	TotalAmount    int64  `json:"totalAmount"` // minor units
	SubmittedAt    int64  `json:"submittedAt"`
	SettleBy       int64  `json:"settleBy"` // the deadline of all rows
	Replayed       bool   `json:"-"`        // the batch had already been submitted
	TraceID        string `json:"-"`        // for Client.Trace; a replay has no trace
}

// BatchStatus is the state of a batch with its rows. Amounts are in minor units, times in Unix ms.
type BatchStatus struct {
	BatchReference  string      `json:"batchReference"`
	RetryOf         string      `json:"retryOf,omitempty"` // the batch that this one retries
	State           string      `json:"state"`             // inProgress or settled
	SubmittedAt     int64       `json:"submittedAt"`
	SettleBy        int64       `json:"settleBy"`
	SettledAt       int64       `json:"settledAt,omitempty"` // 0 until settled
	RowCount        int         `json:"rowCount"`
	TotalAmount     int64       `json:"totalAmount"`
	Counts          BatchCounts `json:"counts"`
	SucceededAmount int64       `json:"succeededAmount"`
	Rows            []RowStatus `json:"rows,omitempty"` // in submitted order; none in lists, traces and webhooks
}

// BatchCounts counts the rows of a batch by state, and its settled rows by outcome.
type BatchCounts struct {
	Pending    int `json:"pending"`
	InProgress int `json:"inProgress"`
	Settled    int `json:"settled"`
	Succeeded  int `json:"succeeded"`
	Failed     int `json:"failed"` // settled with any outcome but succeeded
}

// RowStatus is the state of a row. Amounts are in minor units, times in Unix ms.
type RowStatus struct {
	RowReference      string `json:"rowReference"`
	CustomerReference string `json:"customerReference"`
	Amount            int64  `json:"amount"`
	State             string `json:"state"`                      // pending, inProgress or settled
	Outcome           string `json:"outcome,omitempty"`          // "" until settled
	CorrectedOutcome  string `json:"correctedOutcome,omitempty"` // "" unless corrected after settlement
	SettledAt         int64  `json:"settledAt,omitempty"`        // 0 until settled
	Attempts          int    `json:"attempts"`                   // debit calls
	NextAttemptAt     int64  `json:"nextAttemptAt,omitempty"`    // 0: no attempt is planned
}

// SubmitBatch submits a batch. Submission is idempotent: submitting the same batch again returns
// the same receipt. Submitting another batch with its batchReference is an *Error with the code
// "batches:batch-reference-conflict".
func (c *Client) SubmitBatch(ctx context.Context, site string, batch Batch) (Receipt, error) {
	var out Receipt
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches"), body: batch, repeatable: true,
	}, &out)
	out.Replayed, out.TraceID = answer.header.Get("Idempotent-Replayed") == "true", answer.trace
	return out, err
}

// Prediction is the outcome that a row would have now.
type Prediction struct {
	RowReference string `json:"rowReference"`
	Prediction   string `json:"prediction"` // OutcomeSucceeded or OutcomeCustomerNotActive
}

// ValidateBatch checks a batch without submitting it. It returns a prediction for each row, in the
// order of the rows.
func (c *Client) ValidateBatch(ctx context.Context, site string, batch Batch) ([]Prediction, error) {
	var out struct {
		Rows []Prediction `json:"rows"`
	}
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches", "validation"), body: batch,
		repeatable: true,
	}, &out)
	return out.Rows, err
}

// BatchFilter selects batches of a list. The zero value selects all.
type BatchFilter struct {
	State         string // StateInProgress or StateSettled
	SubmittedFrom int64  // Unix ms, inclusive
	SubmittedTo   int64  // Unix ms, inclusive
	Limit         int    // items per page; 0: the API's default
}

// Batches iterates over the batches of a Site, without their rows, newest first. It fetches further
// pages as needed.
func (c *Client) Batches(ctx context.Context, site string, filter BatchFilter) iter.Seq2[BatchStatus, error] {
	return list[BatchStatus](ctx, c, path("billing", "sites", site, "batches")+
		query(map[string]string{"state": filter.State}, map[string]int64{
			"submittedFrom": filter.SubmittedFrom, "submittedTo": filter.SubmittedTo, "limit": int64(filter.Limit),
		}))
}

// BatchRowsCSV returns the rows of a batch as CSV, with a header line.
func (c *Client) BatchRowsCSV(ctx context.Context, site, reference string) ([]byte, error) {
	answer, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "batches", reference, "rows"), repeatable: true,
		raw: true,
	}, nil)
	return answer.body, err
}

// Batch returns a batch with its rows.
func (c *Client) Batch(ctx context.Context, site, reference string) (BatchStatus, error) {
	var out BatchStatus
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "batches", reference), repeatable: true,
	}, &out)
	return out, err
}

// AwaitBatch waits until a batch is settled. If ctx ends first, it returns the last known state
// with an error.
func (c *Client) AwaitBatch(ctx context.Context, site, reference string) (BatchStatus, error) {
	return await(ctx, c, path("billing", "sites", site, "batches", reference), func(b *BatchStatus) bool {
		return b.State == StateSettled
	})
}

// WatchBatch iterates over the states of a batch until it is settled or an error occurs. At least a
// second passes between two states. While nothing changes, the service holds its answer or answers
// 304.
func (c *Client) WatchBatch(ctx context.Context, site, reference string) iter.Seq2[BatchStatus, error] {
	return func(yield func(BatchStatus, error) bool) {
		hold, header := c.holdTime(), http.Header{}
		get := request{method: http.MethodGet, path: path("billing", "sites", site, "batches", reference),
			header: header, repeatable: true}
		for {
			began := time.Now()
			answer, err := c.do(ctx, get, nil)
			changed := answer.status != http.StatusNotModified
			if err != nil || changed {
				var batch BatchStatus
				if err == nil {
					err = answer.decode(&batch)
				}
				if !yield(batch, err) || err != nil || batch.State == StateSettled {
					return
				}
			}
			if etag := answer.header.Get("ETag"); etag != "" {
				header.Set("If-None-Match", etag)
				prefer(header, hold)
			}
			if !changed && hold > 0 && time.Since(began) >= hold/2 {
				continue
			}
			if err := pause(ctx, answer); err != nil {
				yield(BatchStatus{}, err)
				return
			}
		}
	}
}

// CancelBatch cancels the rows of a batch whose debit has not begun, and returns the batch. A row
// whose debit may be under way ends as the bank says.
func (c *Client) CancelBatch(ctx context.Context, site, reference string) (BatchStatus, error) {
	var out BatchStatus
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches", reference, "cancellation"),
		repeatable: true,
	}, &out)
	return out, err
}

// RetryBatch submits a new batch of those rows of a settled batch that may succeed now. The new
// batch has the batchReference newReference. A batch can be retried once.
func (c *Client) RetryBatch(ctx context.Context, site, reference, newReference string) (Receipt, error) {
	var out Receipt
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches", reference, "retry"),
		body: map[string]string{"batchReference": newReference}, repeatable: true,
	}, &out)
	out.Replayed, out.TraceID = answer.header.Get("Idempotent-Replayed") == "true", answer.trace
	return out, err
}
