package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

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

// Receipt confirms a submission.
type Receipt struct {
	BatchReference string `json:"batchReference"`
	State          string `json:"state"`
	RowCount       int    `json:"rowCount"`
	TotalAmount    int64  `json:"totalAmount"`
	SubmittedAt    int64  `json:"submittedAt"` // Unix ms
	SettleBy       int64  `json:"settleBy"`    // Unix ms; deadline for all rows
	Replayed       bool   `json:"-"`           // the batch had already been submitted
	TraceID        string `json:"-"`           // for Trace, unless Replayed
}

// BatchStatus is the state of a batch with its rows. Times are in Unix ms.
type BatchStatus struct {
	BatchReference  string      `json:"batchReference"`
	State           string      `json:"state"` // inProgress or settled
	SubmittedAt     int64       `json:"submittedAt"`
	SettleBy        int64       `json:"settleBy"`
	SettledAt       int64       `json:"settledAt,omitempty"` // 0 until settled
	RowCount        int         `json:"rowCount"`
	TotalAmount     int64       `json:"totalAmount"`
	Counts          BatchCounts `json:"counts"`
	SucceededAmount int64       `json:"succeededAmount"`
	Rows            []RowStatus `json:"rows,omitempty"` // in submitted order
}

// BatchCounts counts the rows of a batch.
type BatchCounts struct {
	Pending    int `json:"pending"`
	InProgress int `json:"inProgress"`
	Settled    int `json:"settled"`
	Succeeded  int `json:"succeeded"`
	Failed     int `json:"failed"`
}

// RowStatus is the state of a row. Times are in Unix ms.
type RowStatus struct {
	RowReference      string `json:"rowReference"`
	CustomerReference string `json:"customerReference"`
	Amount            int64  `json:"amount"`
	State             string `json:"state"`                      // pending, inProgress or settled
	Outcome           string `json:"outcome,omitempty"`          // "" until settled
	CorrectedOutcome  string `json:"correctedOutcome,omitempty"` // "" unless corrected after settlement
	SettledAt         int64  `json:"settledAt,omitempty"`
	Attempts          int    `json:"attempts"`
	NextAttemptAt     int64  `json:"nextAttemptAt,omitempty"`
}

// SubmitBatch submits a batch. Submission is idempotent: submitting the same batch again returns
// the same receipt.
func (c *Client) SubmitBatch(ctx context.Context, site string, batch Batch) (Receipt, error) {
	var out Receipt
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches"), body: batch, repeatable: true,
	}, &out)
	out.Replayed, out.TraceID = answer.header.Get("Idempotent-Replayed") == "true", answer.trace
	return out, err
}

// Batch returns a batch with its rows.
func (c *Client) Batch(ctx context.Context, site, reference string) (BatchStatus, error) {
	return c.batch(ctx, site, reference, http.Header{})
}

func (c *Client) batch(ctx context.Context, site, reference string, header http.Header) (BatchStatus, error) {
	var out BatchStatus
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "batches", reference), header: header,
		repeatable: true,
	}, &out)
	return out, err
}

// AwaitBatch waits until a batch is settled. If ctx ends first, it returns the last known state
// with an error.
func (c *Client) AwaitBatch(ctx context.Context, site, reference string) (BatchStatus, error) {
	const wait = 20 * time.Second // shorter than common time-outs of clients and proxies
	for {
		header := http.Header{"Prefer": {fmt.Sprintf("wait=%d", int(wait.Seconds()))}}
		batch, err := c.batch(ctx, site, reference, header)
		if err != nil || batch.State == "settled" {
			return batch, err
		}
	}
}

// CancelBatch cancels the rows of a batch for which no debit was attempted.
func (c *Client) CancelBatch(ctx context.Context, site, reference string) (BatchStatus, error) {
	var out BatchStatus
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches", reference, "cancellation"),
		repeatable: true,
	}, &out)
	return out, err
}

// RetryBatch submits the rows of a settled batch that may succeed now as a new batch.
func (c *Client) RetryBatch(ctx context.Context, site, reference, newReference string) (Receipt, error) {
	var out Receipt
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches", reference, "retry"),
		body: map[string]string{"batchReference": newReference}, repeatable: true,
	}, &out)
	out.Replayed, out.TraceID = answer.header.Get("Idempotent-Replayed") == "true", answer.trace
	return out, err
}
