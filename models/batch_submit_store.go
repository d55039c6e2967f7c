package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// batchColumns are the columns of the table batches, as b, that a storedBatch holds.
const batchColumns = `b.site_id, b.id, b.organisation_id, b.batch_reference, b.state, b.row_count, b.settled_count,
       b.succeeded_count, b.total_amount, b.succeeded_amount, b.currency, b.submitted_at, b.settle_by, b.settled_at,
       b.cancelled_at, b.generation, b.retry_of, b.retried_as`

// storedBatch is a row of the table batches.
type storedBatch struct {
	SiteID          SiteID
	ID              BatchID
	OrganisationID  OrganisationID
	BatchReference  string
	State           BatchState
	RowCount        int
	SettledCount    int
	SucceededCount  int
	TotalAmount     Amount
	SucceededAmount Amount
	Currency        string
	SubmittedAt     Millis
	SettleBy        Millis
	SettledAt       Millis
	CancelledAt     Millis
	Generation      int
	RetryOf         string
	RetriedAs       string
}

// batch returns the row as a Batch. All unsettled rows count as pending, since the table batches
// does not store how many are in progress.
func (r *storedBatch) batch() Batch {
	return Batch{
		SiteID: r.SiteID, ID: r.ID, OrganisationID: r.OrganisationID, Reference: r.BatchReference,
		Generation: r.Generation, RetryOf: r.RetryOf, RetriedAs: r.RetriedAs, State: r.State,
		Counts: BatchCounts{
			Pending: r.RowCount - r.SettledCount, Settled: r.SettledCount, Succeeded: r.SucceededCount,
			Failed: r.SettledCount - r.SucceededCount,
		},
		TotalAmount: r.TotalAmount, SucceededAmount: r.SucceededAmount, Currency: r.Currency,
		SubmittedAt: r.SubmittedAt, SettleBy: r.SettleBy, SettledAt: r.SettledAt, CancelledAt: r.CancelledAt,
	}
}

var (
	//go:embed batch_submit.sql
	batchSubmitText string
	submitBatchSQL  = postgres.SQL(batchSubmitText)

	lockSubmissionSQL = postgres.SQL(`
SELECT ` + batchColumns + `, svc_now() AS now, b.fingerprint, b.extras FROM batches b
WHERE b.site_id = :site AND b.batch_reference = :reference FOR UPDATE`)
	submittedRowsSQL = postgres.SQL(`
SELECT customer_reference, row_reference, amount FROM batch_rows
WHERE site_id = :site AND batch_id = :batch ORDER BY row_index`)
	dropBatchSQL = postgres.SQL(`
WITH r AS (
    DELETE FROM batch_rows WHERE site_id = :site AND batch_id = :batch
)
DELETE FROM batches WHERE site_id = :site AND id = :batch`)
)

// SubmitBatch stores a batch with its rows and tasks. If the reference names a stored batch, the
// result says whether that batch is identical (Replayed) or different (Conflict). Of concurrent
// submissions, one creates the batch. The reference of a batch past BatchRetention is free again.
//
// Errors: ErrAmountOverflow; *QuotaError for a batch that would be new; ErrNotFound if the Site is
// unknown.
func (s *Store) SubmitBatch(ctx context.Context, n NewBatch) (done Submission, err error) {
	total, err := n.Total()
	if err != nil {
		return Submission{}, err
	}
	rows := int64(len(n.Rows))
	reserved, refused := s.gauges.openRows.reserve(ctx, n.OrganisationID, rows)
	defer func() { reserved.done(stored(rows, err == nil && done.IsNew())) }()
	if refused != nil {
		return s.resubmission(ctx, n, refused)
	}
	// The loop repeats only if the Site is unknown, or if the earlier batch of the reference has
	// just been dropped. One repetition normally suffices; the other allows for concurrent calls.
	for range 3 {
		done, err := insertBatch(ctx, s.pg, n, total)
		if err == nil || !errors.Is(err, sql.ErrNoRows) {
			return done, wrap("submit batch", err)
		}
		if done, err = s.earlierSubmission(ctx, n); err == nil || !errors.Is(err, ErrNotFound) {
			return done, wrap("submit batch", err)
		}
	}
	if _, err := s.AnySite(ctx, n.SiteID); err != nil {
		return Submission{}, wrap("submit batch", err)
	}
	return Submission{}, fmt.Errorf("models: submit batch: the reference keeps changing hands: %w", ErrUnavailable)
}

// resubmission does what SubmitBatch does, except that it returns the error refused instead of
// storing a new batch.
func (s *Store) resubmission(ctx context.Context, n NewBatch, refused error) (Submission, error) {
	done, err := s.earlierSubmission(ctx, n)
	if errors.Is(err, ErrNotFound) {
		err = refused
	}
	return done, wrap("submit batch", err)
}

// insertBatch stores a batch with new tasks. total is the sum of its amounts. sql.ErrNoRows: the
// reference is taken, or the Site is unknown.
func insertBatch(ctx context.Context, db postgres.Session, n NewBatch, total Amount) (Submission, error) {
	rows := len(n.Rows)
	customers, references, amounts := make([]string, rows), make([]string, rows), make([]int64, rows)
	for i, r := range n.Rows {
		customers[i], references[i], amounts[i] = r.CustomerReference, r.RowReference, int64(r.Amount)
	}
	done := Submission{Tasks: make([]TaskID, (rows+ChunkRows-1)/ChunkRows)}
	for i := range done.Tasks {
		done.Tasks[i] = NewID[taskNoun]()
	}
	var row storedBatch
	err := db.Get(ctx, submitBatchSQL, postgres.Args{
		"site": n.SiteID, "batch": newIDFor[batchNoun](n.TraceID), "batch_reference": n.Reference,
		"trace": string(n.TraceID), "total_amount": int64(total), "fingerprint": n.Fingerprint[:], "extras": n.Extras,
		"settle_within": SettleWithin.Milliseconds(), "customer_references": customers, "row_references": references,
		"amounts": amounts, "links": n.links, "retry_of": n.retryOf,
		"tasks": done.Tasks, "kind": string(TaskDebitRows), "queue": string(QueueDebits), "chunk_rows": ChunkRows,
	}, &row)
	done.Batch = row.batch()
	return done, err
}

// earlierSubmission compares a submission with the stored batch of its reference. ErrNotFound:
// there is no such batch, or it was past its retention, and earlierSubmission has dropped it.
func (s *Store) earlierSubmission(ctx context.Context, n NewBatch) (Submission, error) {
	var done Submission
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		done = Submission{}
		var stored struct {
			storedBatch
			Now                 Millis
			Fingerprint, Extras []byte
		}
		err := tx.Get(ctx, lockSubmissionSQL, postgres.Args{"site": n.SiteID, "reference": n.Reference}, &stored)
		switch {
		case err != nil:
			return notFound(err, "batch")
		case stored.SubmittedAt.Add(BatchRetention) <= stored.Now:
			return dropBatch(ctx, tx, stored.SiteID, stored.ID)
		case [32]byte(stored.Fingerprint) == n.Fingerprint:
			done.Batch, done.Replayed = stored.batch(), true
			return nil
		}
		done.Conflict = &StoredSubmission{Extras: stored.Extras, RetryOf: stored.RetryOf}
		rows := postgres.Args{"site": stored.SiteID, "batch": stored.ID}
		return tx.Select(ctx, submittedRowsSQL, rows, &done.Conflict.Rows)
	})
	if err == nil && !done.Replayed && done.Conflict == nil {
		return done, ErrNotFound
	}
	return done, err
}

// dropBatch deletes a batch with its rows. Its ledger entries remain. Leftover tasks find no batch
// and end.
func dropBatch(ctx context.Context, tx postgres.Tx, site SiteID, batch BatchID) error {
	_, err := tx.Run(ctx, dropBatchSQL, postgres.Args{"site": site, "batch": batch})
	return err
}
