package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Batch is a submission.
type Batch struct {
	BatchReference string `json:"batchReference"`
	Rows           []Row  `json:"rows"`
}

// Row is one debit of a submission.
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
	SettleBy       int64  `json:"settleBy"`    // Unix ms; by then every row is settled
	Replayed       bool   `json:"-"`           // the same batch had been submitted before
	TraceID        string `json:"-"`           // of this request: Trace says what it led to, unless it is replayed
}

// BatchStatus is a batch and its rows.
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

// RowStatus is a row and how far it is.
type RowStatus struct {
	RowReference      string `json:"rowReference"`
	CustomerReference string `json:"customerReference"`
	Amount            int64  `json:"amount"`
	State             string `json:"state"`                      // pending, inProgress or settled
	Outcome           string `json:"outcome,omitempty"`          // "" until settled
	CorrectedOutcome  string `json:"correctedOutcome,omitempty"` // "" unless the truth came later
	SettledAt         int64  `json:"settledAt,omitempty"`
	Attempts          int    `json:"attempts"`
	NextAttemptAt     int64  `json:"nextAttemptAt,omitempty"`
}

// SubmitBatch submits a batch. The same batch may be submitted again at any time: it is created once.
func (c *Client) SubmitBatch(ctx context.Context, site string, batch Batch) (Receipt, error) {
	var out Receipt
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches"), body: batch, repeatable: true,
	}, &out)
	out.Replayed, out.TraceID = answer.header.Get("Idempotent-Replayed") == "true", answer.trace
	return out, err
}

// Batch reads a batch.
func (c *Client) Batch(ctx context.Context, site, reference string) (BatchStatus, error) {
	return c.batch(ctx, site, reference, http.Header{})
}

func (c *Client) batch(ctx context.Context, site, reference string, header http.Header) (BatchStatus, error) {
	var out BatchStatus
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "batches", reference), header: header, repeatable: true,
	}, &out)
	return out, err
}

// AwaitBatch waits until a batch is settled or the context ends; it returns the batch as last seen.
func (c *Client) AwaitBatch(ctx context.Context, site, reference string) (BatchStatus, error) {
	const wait = 20 * time.Second // below the time-outs of clients and proxies
	for {
		header := http.Header{"Prefer": {fmt.Sprintf("wait=%d", int(wait.Seconds()))}}
		batch, err := c.batch(ctx, site, reference, header)
		if err != nil || batch.State == "settled" {
			return batch, err
		}
	}
}

// CancelBatch ends what has not been tried yet.
func (c *Client) CancelBatch(ctx context.Context, site, reference string) (BatchStatus, error) {
	var out BatchStatus
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches", reference, "cancellation"), repeatable: true,
	}, &out)
	return out, err
}

// RetryBatch submits, as a new batch, the rows of a settled one that may succeed now.
func (c *Client) RetryBatch(ctx context.Context, site, reference, newReference string) (Receipt, error) {
	var out Receipt
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "batches", reference, "retry"),
		body: map[string]string{"batchReference": newReference}, repeatable: true,
	}, &out)
	out.Replayed, out.TraceID = answer.header.Get("Idempotent-Replayed") == "true", answer.trace
	return out, err
}
