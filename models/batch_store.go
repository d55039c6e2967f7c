package models

import (
	"context"
	_ "embed" // statements

	"partnerbilling/models/postgres"
)

// GetBatch reads a batch and its rows, in submitted order, from one snapshot. It settles a batch
// that is past its deadline. ErrNotFound: the Site has no such batch, or its retention has ended.
func (s *Store) GetBatch(ctx context.Context, site SiteID, reference string) (Batch, []BatchRow, error) {
	return s.getBatch(ctx, site, reference, nil)
}

// getBatch does what GetBatch does. Unless version is nil, it also sets *version, from the same
// snapshot.
func (s *Store) getBatch(
	ctx context.Context, site SiteID, reference string, version *BatchVersion,
) (Batch, []BatchRow, error) {
	var batch Batch
	var rows []BatchRow
	var now Millis
	read := func(tx postgres.Tx) (err error) {
		if version != nil {
			if *version, err = readBatchVersion(ctx, tx, site, reference); err != nil {
				return err
			}
		}
		batch, rows, now, err = readBatch(ctx, tx, site, reference)
		return err
	}
	err := s.pg.InSnapshot(ctx, read)
	if err == nil && batch.overdue(now) {
		if err = s.closeIfOverdue(ctx, site, batch.ID); err == nil {
			err = s.pg.InSnapshot(ctx, read)
		}
	}
	return batch, rows, wrap("get batch", err)
}

// readBatch reads a batch with its rows, and the service time. It settles nothing. ErrNotFound as
// in GetBatch.
func readBatch(ctx context.Context, tx postgres.Tx, site SiteID, reference string) (Batch, []BatchRow, Millis, error) {
	var found struct {
		storedBatch
		Now Millis
	}
	err := tx.Get(ctx, findBatchSQL, postgres.Args{
		"site": site, "reference": reference, "retention": BatchRetention.Milliseconds(),
	}, &found)
	if err != nil {
		return Batch{}, nil, 0, notFound(err, "batch")
	}
	batch, now := found.batch(), found.Now
	var rows []BatchRow
	err = tx.Select(ctx, batchRowsSQL, postgres.Args{
		"site": site, "batch": batch.ID, "may_begin": now < batch.SettleBy.Add(-LastAttemptBefore),
	}, &rows)
	if err != nil {
		return Batch{}, nil, 0, err
	}
	for _, r := range rows {
		if r.State == RowInProgress {
			batch.Counts.Pending--
			batch.Counts.InProgress++
		}
	}
	return batch, rows, now, nil
}

// shownAttempts returns an SQL expression: the number of debit calls of batch_rows r that partners
// see. The claim of a pending row counts its call in advance, so that a crash cannot lose the
// count. A row whose link is not linked gets no call, so the expression subtracts the claim's
// count. mayBegin is the SQL condition under which debits may begin. If it is false, claims count
// no call.
func shownAttempts(mayBegin string) string {
	return `r.attempts - CASE WHEN r.state = 'inProgress' AND r.lease_token IS NOT NULL AND NOT r.in_doubt
        AND ` + mayBegin + ` AND NOT coalesce((
            SELECT l.state = 'linked' FROM customer_links l WHERE l.site_id = r.site_id AND l.id = r.link_id), false)
        THEN 1 ELSE 0 END`
}

var (
	//go:embed batch_cancel.sql
	batchCancelText string
	cancelBatchSQL  = postgres.SQL(batchCancelText)

	findBatchSQL = postgres.SQL(`
SELECT ` + batchColumns + `, svc_now() AS now FROM batches b
WHERE b.site_id = :site AND b.batch_reference = :reference AND b.submitted_at > svc_now() - :retention`)
	lockBatchSQL = postgres.SQL(`
SELECT ` + batchColumns + `, svc_now() AS now FROM batches b
WHERE b.site_id = :site AND b.batch_reference = :reference AND b.submitted_at > svc_now() - :retention FOR UPDATE`)
	batchRowsSQL = postgres.SQL(`
SELECT row_index AS index, customer_reference, row_reference, amount, state, outcome, corrected_outcome, settled_at,
       ` + shownAttempts(":may_begin") + ` AS attempts,
       CASE WHEN state <> 'settled' THEN next_attempt_at END AS next_attempt_at
FROM batch_rows r WHERE site_id = :site AND batch_id = :batch ORDER BY row_index`)
	predictOutcomesSQL = postgres.SQL(`
SELECT CASE WHEN l.id IS NULL THEN 'customerNotActive' ELSE 'succeeded' END
FROM unnest(:customers::text[]) WITH ORDINALITY AS v (customer_reference, n)
LEFT JOIN LATERAL (
    SELECT l.id FROM customer_links l
    WHERE l.site_id = :site AND l.customer_reference = v.customer_reference AND l.state = 'linked' LIMIT 1) l ON true
ORDER BY v.n`)
)

// CancelBatch cancels a batch, and returns it with its rows. Pending rows end at once as cancelled.
// Tasks cancel rows in doubt on the rail, and also pending rows if the database may have lost their
// calls. A batch past its deadline is closed instead, and a settled batch stays unchanged.
// ErrNotFound as in GetBatch.
func (s *Store) CancelBatch(ctx context.Context, site SiteID, reference string) (Batch, []BatchRow, error) {
	var batch Batch
	var rows []BatchRow
	act := actFrom(ctx).about(SubjectBatch, reference).in(OrganisationID{}, site)
	err := s.act(ctx, func(tx postgres.Tx) error {
		locked, now, err := lockBatch(ctx, tx, site, reference)
		if err != nil {
			return err
		}
		if locked.State == BatchInProgress {
			end, args := cancelBatchSQL, endBatchArgs(site, locked.ID)
			if locked.overdue(now) {
				end = closeBatchSQL
			} else {
				args["queue"] = string(QueueDebits)
			}
			if _, err := tx.Run(ctx, end, args); err != nil {
				return err
			}
		}
		batch, rows, _, err = readBatch(ctx, tx, site, reference)
		if err == nil && locked.State != BatchInProgress {
			return errUnchanged
		}
		cancelled := batch.Counts.Settled - locked.Counts.Settled
		if locked.overdue(now) { // the rows were closed, not cancelled
			cancelled = 0
		}
		act.with("rowsCancelled", cancelled)
		return err
	})
	return batch, rows, wrap("cancel batch", err)
}

// lockBatch locks a batch, and returns it with the service time. ErrNotFound as in GetBatch.
func lockBatch(ctx context.Context, tx postgres.Tx, site SiteID, reference string) (Batch, Millis, error) {
	var locked struct {
		storedBatch
		Now Millis
	}
	err := tx.Get(ctx, lockBatchSQL, postgres.Args{
		"site": site, "reference": reference, "retention": BatchRetention.Milliseconds(),
	}, &locked)
	return locked.batch(), locked.Now, notFound(err, "batch")
}

// endBatchArgs returns the arguments of closeBatchSQL, which cancelBatchSQL takes as well.
func endBatchArgs(site SiteID, batch BatchID) postgres.Args {
	return postgres.Args{"site": site, "batch": batch, "rail_memory": RailMemory.Milliseconds()}
}

// PredictOutcomes predicts the outcome of a debit of each customerReference, in the order of
// customers. It looks at the current link alone: OutcomeSucceeded for a linked customer, else
// OutcomeCustomerNotActive. It stores nothing.
func (s *Store) PredictOutcomes(ctx context.Context, site SiteID, customers []string) ([]RowOutcome, error) {
	var outcomes []RowOutcome
	err := s.pg.Select(ctx, predictOutcomesSQL, postgres.Args{"site": site, "customers": customers}, &outcomes)
	return outcomes, wrap("predict outcomes", err)
}
