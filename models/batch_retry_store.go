package models

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

var (
	// childSQL reads the batch that a retry has made.
	childSQL = postgres.SQL(`
SELECT ` + batchColumns + ` FROM batches b WHERE b.site_id = :site AND b.batch_reference = :reference`)
	// retryableRowsSQL reads the rows of a batch with the given outcomes, without corrected rows.
	retryableRowsSQL = postgres.SQL(`
SELECT customer_reference, row_reference, amount, link_id FROM batch_rows
WHERE site_id = :site AND batch_id = :batch AND outcome::text = ANY (:outcomes::text[]) AND corrected_outcome IS NULL
ORDER BY row_index`)
	// expiredHolderSQL locks the batch of a reference if its retention has ended.
	expiredHolderSQL = postgres.SQL(`
SELECT id FROM batches
WHERE site_id = :site AND batch_reference = :reference AND submitted_at <= svc_now() - :retention FOR UPDATE`)
	markRetriedSQL = postgres.SQL(`
UPDATE batches SET retried_as = :child WHERE site_id = :site AND id = :batch AND retried_as IS NULL`)
)

// RetryBatch makes a new batch, the child, of the retryable rows of a settled batch, the parent.
// Each batch names the other. A row of the child stays bound to the customer link of its parent
// row. A batch is retried at most once: the same call again returns the same child as replayed.
//
// Errors, by precedence: ErrNotFound; ErrBatchInProgress; ErrAlreadyRetried under another
// reference; ErrNothingToRetry; *QuotaError; ErrBatchReferenceTaken.
func (s *Store) RetryBatch(ctx context.Context, n NewRetry) (done Submission, err error) {
	// The number of rows is known only inside the transaction, so the quota reserves one row.
	reserved, refused := s.gauges.openRows.reserve(ctx, n.OrganisationID, 1)
	defer func() { reserved.done(stored(int64(done.Batch.Counts.Rows()), err == nil && done.IsNew())) }()
	actFrom(ctx).about(SubjectBatch, n.Parent).in(n.OrganisationID, n.SiteID).with("retry", n.Reference)
	err = s.act(ctx, func(tx postgres.Tx) error {
		done, err = retryBatch(ctx, tx, &n, refused)
		if err == nil && done.Replayed {
			return errUnchanged
		}
		return err
	})
	return done, wrap("retry batch", err)
}

// retryBatch makes the child, or finds the child that an earlier call made. It locks the parent, so
// that of concurrent retries one makes the child. If refused is not nil, retryBatch makes no child
// and returns refused instead.
func retryBatch(ctx context.Context, tx postgres.Tx, n *NewRetry, refused error) (Submission, error) {
	parent, err := lockSettledBatch(ctx, tx, n.SiteID, n.Parent)
	switch {
	case err != nil:
		return Submission{}, err
	case parent.RetriedAs == n.Reference:
		var child storedBatch
		err := tx.Get(ctx, childSQL, postgres.Args{"site": n.SiteID, "reference": n.Reference}, &child)
		return Submission{Batch: child.batch(), Replayed: true}, err
	case parent.RetriedAs != "":
		return Submission{}, ErrAlreadyRetried
	}
	child := NewBatch{
		SiteID: n.SiteID, OrganisationID: n.OrganisationID, Reference: n.Reference, TraceID: n.TraceID,
		Fingerprint: n.fingerprint(), retryOf: n.Parent,
	}
	if child.Rows, child.links, err = retryableRows(ctx, tx, &parent); err != nil {
		return Submission{}, err
	}
	if len(child.Rows) == 0 {
		return Submission{}, ErrNothingToRetry
	}
	if refused != nil {
		return Submission{}, refused
	}
	done, err := insertChild(ctx, tx, child)
	if err != nil {
		return Submission{}, err
	}
	return done, markRetried(ctx, tx, &parent, n.Reference)
}

// lockSettledBatch locks a batch and settles it if it is past its deadline. Errors: ErrNotFound,
// ErrBatchInProgress.
func lockSettledBatch(ctx context.Context, tx postgres.Tx, site SiteID, reference string) (Batch, error) {
	batch, now, err := lockBatch(ctx, tx, site, reference)
	switch {
	case err != nil:
		return Batch{}, err
	case batch.overdue(now):
		_, err = tx.Run(ctx, closeBatchSQL, endBatchArgs(site, batch.ID))
		batch.State = BatchSettled
	case batch.State != BatchSettled:
		return Batch{}, ErrBatchInProgress
	}
	return batch, err
}

// retryableRows returns the retryable rows of a settled batch in submitted order, and for each row
// the link that it is bound to. It leaves out corrected rows.
func retryableRows(ctx context.Context, tx postgres.Tx, b *Batch) (rows []NewRow, links []LinkID, err error) {
	var outcomes []string
	for _, o := range RowOutcomes {
		if o.Retryable() {
			outcomes = append(outcomes, string(o))
		}
	}
	var bound []struct {
		NewRow
		LinkID LinkID
	}
	err = tx.Select(ctx, retryableRowsSQL, postgres.Args{"site": b.SiteID, "batch": b.ID, "outcomes": outcomes}, &bound)
	for _, r := range bound {
		rows, links = append(rows, r.NewRow), append(links, r.LinkID)
	}
	return rows, links, err
}

// insertChild inserts the batch of a retry. It drops a batch with the same reference whose
// retention has ended. ErrBatchReferenceTaken: another batch has the reference.
func insertChild(ctx context.Context, tx postgres.Tx, child NewBatch) (Submission, error) {
	total, err := child.Total()
	if err != nil {
		return Submission{}, err
	}
	for range 2 { // the second attempt follows the drop of the earlier batch
		done, err := insertBatch(ctx, tx, child, total)
		if !errors.Is(err, sql.ErrNoRows) {
			return done, err
		}
		if err := dropExpiredHolder(ctx, tx, child.SiteID, child.Reference); err != nil {
			return Submission{}, err
		}
	}
	return Submission{}, ErrBatchReferenceTaken
}

// dropExpiredHolder drops the batch that has the reference if its retention has ended. It locks no
// other batch, so that retries do not wait for each other's parents.
func dropExpiredHolder(ctx context.Context, tx postgres.Tx, site SiteID, reference string) error {
	var expired BatchID
	err := tx.Get(ctx, expiredHolderSQL, postgres.Args{
		"site": site, "reference": reference, "retention": BatchRetention.Milliseconds(),
	}, &expired)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return dropBatch(ctx, tx, site, expired)
}

// markRetried writes the child's reference to its parent, which the transaction has locked.
func markRetried(ctx context.Context, tx postgres.Tx, parent *Batch, child string) error {
	n, err := tx.Run(ctx, markRetriedSQL, postgres.Args{"site": parent.SiteID, "batch": parent.ID, "child": child})
	if err != nil {
		return fmt.Errorf("mark the parent: %w", err)
	}
	if n != 1 {
		return fmt.Errorf("mark the parent: %d rows: %w", n, ErrAlreadyRetried)
	}
	return nil
}
