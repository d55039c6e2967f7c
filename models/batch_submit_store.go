package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// batchColumns are the columns that scanBatch reads.
const batchColumns = `b.site_id, b.id, b.organisation_id, b.batch_reference, b.state, b.row_count, b.settled_count,
 b.succeeded_count, b.total_amount, b.succeeded_amount, b.currency, b.submitted_at, b.settle_by,
 coalesce(b.settled_at, 0), coalesce(b.cancelled_at, 0), b.generation, coalesce(b.retry_of, ''), coalesce(b.retried_as, '')`

// batchFields are the scan targets of batchColumns. Unsettled rows count as pending until the rows
// themselves are read.
func batchFields(b *Batch) []any {
	return []any{
		&b.SiteID, &b.ID, &b.OrganisationID, &b.Reference, &b.State, &b.Counts.Pending, &b.Counts.Settled,
		&b.Counts.Succeeded, &b.TotalAmount, &b.SucceededAmount, &b.Currency, &b.SubmittedAt, &b.SettleBy,
		&b.SettledAt, &b.CancelledAt, &b.Generation, &b.RetryOf, &b.RetriedAs,
	}
}

func scanBatch(row interface{ Scan(...any) error }, more ...any) (Batch, error) {
	var b Batch
	if err := row.Scan(append(batchFields(&b), more...)...); err != nil {
		return Batch{}, err
	}
	b.fillCounts()
	return b, nil
}

// fillCounts turns the row count, which batchFields scans into Pending, into the number of pending
// rows.
func (b *Batch) fillCounts() {
	b.Counts.Pending -= b.Counts.Settled
	b.Counts.Failed = b.Counts.Settled - b.Counts.Succeeded
}

//go:embed batch_submit.sql
var submitSQL string

// SubmitBatch stores a batch with its rows and tasks. If the reference is taken, it reports the
// stored submission: identical (replayed) or different (conflict). Of concurrent submissions, one
// creates the batch. A reference older than BatchRetention is free. *QuotaError refuses a new
// batch.
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
	// The loop repeats only if the earlier batch under the reference has just been, or must be,
	// dropped.
	for range 3 {
		done, err := s.insertBatch(ctx, n, total)
		if err == nil || !errors.Is(err, sql.ErrNoRows) {
			return done, wrap("submit batch", err)
		}
		if done, err = s.earlierSubmission(ctx, n); err == nil || !errors.Is(err, ErrNotFound) {
			return done, wrap("submit batch", err)
		}
	}
	return Submission{}, fmt.Errorf("models: submit batch: the reference keeps changing hands: %w", ErrUnavailable)
}

// resubmission is SubmitBatch without storing a new batch: refused is the error for a new one.
func (s *Store) resubmission(ctx context.Context, n NewBatch, refused error) (Submission, error) {
	done, err := s.earlierSubmission(ctx, n)
	if errors.Is(err, ErrNotFound) {
		err = refused
	}
	return done, wrap("submit batch", err)
}

func (s *Store) insertBatch(ctx context.Context, n NewBatch, total Amount) (done Submission, err error) {
	err = s.pg.Do(ctx, func() error {
		done, err = insertBatch(ctx, s.db.DB, n, total)
		return err
	})
	return done, err
}

// insertBatch runs the submit statement; sql.ErrNoRows if the reference is taken.
func insertBatch(ctx context.Context, db querier, n NewBatch, total Amount) (Submission, error) {
	rows := len(n.Rows)
	customers, references, amounts := make([]string, rows), make([]string, rows), make([]int64, rows)
	for i, r := range n.Rows {
		customers[i], references[i], amounts[i] = r.CustomerReference, r.RowReference, int64(r.Amount)
	}
	done := Submission{Tasks: make([]TaskID, (rows+ChunkRows-1)/ChunkRows)}
	for i := range done.Tasks {
		done.Tasks[i] = NewID[taskNoun]()
	}
	var capacity int
	var err error
	done.Batch, err = scanBatch(db.QueryRowContext(ctx, submitSQL, n.SiteID, newIDFor[batchNoun](n.TraceID), n.Reference,
		int64(total), SettleWithin.Milliseconds(), n.Fingerprint[:], n.Extras, string(n.TraceID), customers, references,
		amounts, done.Tasks, string(TaskDebitRows), string(QueueDebits), ChunkRows,
		n.Claim.InFlight, n.Claim.total(), ClaimLease.Milliseconds(), n.retryOf, n.links), &capacity)
	done.Claimed = claimedTasks(n, done.Tasks, capacity)
	return done, err
}

// claimedTasks are the first tasks of a new batch, as many as the claim admits.
func claimedTasks(n NewBatch, tasks []TaskID, capacity int) []Task {
	claimed := make([]Task, min(capacity, len(tasks)))
	for i := range claimed {
		claimed[i] = Task{
			ID: tasks[i], Kind: TaskDebitRows, OrganisationID: n.OrganisationID, SiteID: n.SiteID, TraceID: n.TraceID, Epoch: 1,
			Rows: min(ChunkRows, len(n.Rows)-i*ChunkRows),
		}
	}
	return claimed
}

// earlierSubmission compares a submission with the stored one under its reference. A batch past its
// retention is dropped, and the result is ErrNotFound.
func (s *Store) earlierSubmission(ctx context.Context, n NewBatch) (Submission, error) {
	var done Submission
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		done = Submission{}
		var now Millis
		var fingerprint, extras []byte
		batch, err := scanBatch(tx.Tx.Tx.QueryRowContext(ctx, `
SELECT `+batchColumns+`, svc_now(), b.fingerprint, b.extras FROM batches b
WHERE b.site_id = $1 AND b.batch_reference = $2 FOR UPDATE`, n.SiteID, n.Reference), &now, &fingerprint, &extras)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return ErrNotFound
		case err != nil:
			return err
		case batch.SubmittedAt.Add(BatchRetention) <= now:
			return dropBatch(ctx, tx, batch.SiteID, batch.ID)
		case [32]byte(fingerprint) == n.Fingerprint:
			done.Batch, done.Replayed = batch, true
			return nil
		}
		done.Conflict = &StoredSubmission{Extras: extras}
		done.Conflict.Rows, err = storedRows(ctx, tx, batch.SiteID, batch.ID)
		return err
	})
	if err == nil && !done.Replayed && done.Conflict == nil {
		return done, ErrNotFound
	}
	return done, err
}

func storedRows(ctx context.Context, tx postgres.Tx, site SiteID, batch BatchID) ([]NewRow, error) {
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
SELECT customer_reference, row_reference, amount FROM batch_rows
WHERE site_id = $1 AND batch_id = $2 ORDER BY row_index`, site, batch)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(r *NewRow) []any { return []any{&r.CustomerReference, &r.RowReference, &r.Amount} })
}

// dropBatch deletes a batch with its rows. Its ledger entries remain. Leftover tasks find no batch
// and end.
func dropBatch(ctx context.Context, tx postgres.Tx, site SiteID, batch BatchID) error {
	if _, err := tx.Tx.Tx.ExecContext(ctx, `DELETE FROM batches WHERE site_id = $1 AND id = $2`, site, batch); err != nil {
		return err
	}
	_, err := tx.Tx.Tx.ExecContext(ctx, `DELETE FROM batch_rows WHERE site_id = $1 AND batch_id = $2`, site, batch)
	return err
}

// DropOldBatches deletes at most limit batches past their retention and returns their number.
func (s *Store) DropOldBatches(ctx context.Context, limit int) (int, error) {
	n, err := s.execCount(ctx, "drop old batches", `
WITH old AS (
    SELECT site_id, id FROM batches WHERE submitted_at <= svc_now() - $1 ORDER BY submitted_at
    LIMIT $2 FOR UPDATE SKIP LOCKED
), r AS (
    DELETE FROM batch_rows r USING old WHERE r.site_id = old.site_id AND r.batch_id = old.id
)
DELETE FROM batches b USING old WHERE b.site_id = old.site_id AND b.id = old.id`, BatchRetention.Milliseconds(), limit)
	return n, err
}

// wrap adds the operation's name to an error. A nil error stays nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("models: %s: %w", what, err)
}
