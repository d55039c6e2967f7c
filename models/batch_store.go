package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"

	"partnerbilling/models/postgres"
)

// GetBatch reads a batch and its rows, in submitted order, from one snapshot. It settles a batch
// that is past its deadline. ErrNotFound: the Site has no such batch, or its retention has ended.
func (s *Store) GetBatch(ctx context.Context, site SiteID, reference string) (Batch, []BatchRow, error) {
	var batch Batch
	var rows []BatchRow
	var now Millis
	read := func(tx postgres.Tx) (err error) {
		batch, rows, now, err = readBatch(ctx, tx, site, reference)
		return err
	}
	err := s.pg.InSnapshot(ctx, read)
	if err == nil && batch.overdue(now) {
		if err = s.closeIfOverdue(ctx, site, batch.ID); err == nil {
			err = s.pg.InSnapshot(ctx, read)
		}
	}
	if err != nil {
		return Batch{}, nil, wrap("get batch", err)
	}
	return batch, rows, nil
}

func readBatch(ctx context.Context, tx postgres.Tx, site SiteID, reference string) (Batch, []BatchRow, Millis, error) {
	var now Millis
	batch, err := scanBatch(tx.Tx.Tx.QueryRowContext(ctx, `
SELECT `+batchColumns+`, svc_now() FROM batches b
WHERE b.site_id = $1 AND b.batch_reference = $2 AND b.submitted_at > svc_now() - $3`, site, reference,
		BatchRetention.Milliseconds()), &now)
	if errors.Is(err, sql.ErrNoRows) {
		return Batch{}, nil, 0, ErrNotFound
	}
	if err != nil {
		return Batch{}, nil, 0, err
	}
	found, err := tx.Tx.Tx.QueryContext(ctx, `
SELECT row_index, customer_reference, row_reference, amount, state, coalesce(outcome::text, ''),
       coalesce(corrected_outcome::text, ''), coalesce(settled_at, 0), `+shownAttempts("$3")+`,
       CASE WHEN state = 'settled' THEN 0 ELSE coalesce(next_attempt_at, 0) END
FROM batch_rows r WHERE site_id = $1 AND batch_id = $2 ORDER BY row_index`, site, batch.ID,
		now < batch.SettleBy.Add(-LastAttemptBefore))
	if err != nil {
		return Batch{}, nil, 0, err
	}
	rows, err := scanAll(found, func(r *BatchRow) []any {
		return []any{
			&r.Index, &r.CustomerReference, &r.RowReference, &r.Amount, &r.State, &r.Outcome, &r.CorrectedOutcome,
			&r.SettledAt, &r.Attempts, &r.NextAttemptAt,
		}
	})
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

// shownAttempts is the number of debit calls of batch_rows r that partners see. The claim of a
// pending row counts its call in advance, so that a crash cannot lose the count. A row whose link
// is not linked cannot be debited, so the claim's count is left out. mayBegin is the SQL condition
// under which debits may begin; without it, claims count nothing.
func shownAttempts(mayBegin string) string {
	return `r.attempts - CASE WHEN r.state = 'inProgress' AND r.lease_token IS NOT NULL AND NOT r.in_doubt AND ` + mayBegin + `
        AND NOT coalesce((SELECT l.state = 'linked' FROM customer_links l WHERE l.site_id = r.site_id AND l.id = r.link_id), false)
        THEN 1 ELSE 0 END`
}

//go:embed batch_cancel.sql
var cancelBatchSQL string

// CancelBatch cancels every row that is neither settled nor in doubt, and returns the batch. A
// settled batch stays unchanged.
func (s *Store) CancelBatch(ctx context.Context, site SiteID, reference string) (Batch, []BatchRow, error) {
	var batch Batch
	var rows []BatchRow
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var id BatchID
		var state BatchState
		var overdue bool
		err := tx.Tx.Tx.QueryRowContext(ctx, `
SELECT id, state, settle_by <= svc_now() FROM batches
WHERE site_id = $1 AND batch_reference = $2 AND submitted_at > svc_now() - $3 FOR UPDATE`,
			site, reference, BatchRetention.Milliseconds()).Scan(&id, &state, &overdue)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if state == BatchInProgress {
			end := cancelBatchSQL
			if overdue {
				end = closeBatchSQL
			}
			if _, err := tx.Tx.Tx.ExecContext(ctx, end, site, id, RailMemory.Milliseconds()); err != nil {
				return err
			}
		}
		batch, rows, _, err = readBatch(ctx, tx, site, reference)
		return err
	})
	if err != nil {
		return Batch{}, nil, wrap("cancel batch", err)
	}
	return batch, rows, nil
}

// PredictOutcomes predicts the outcome of a debit of each customerReference from its current link
// alone: OutcomeSucceeded for a linked customer, else OutcomeCustomerNotActive. It stores nothing.
func (s *Store) PredictOutcomes(ctx context.Context, site SiteID, customers []string) ([]RowOutcome, error) {
	var outcomes []RowOutcome
	err := s.pg.Do(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, `
SELECT CASE WHEN l.id IS NULL THEN 'customerNotActive' ELSE 'succeeded' END
FROM unnest($2::text[]) WITH ORDINALITY AS v (customer_reference, n)
LEFT JOIN LATERAL (
    SELECT l.id FROM customer_links l
    WHERE l.site_id = $1 AND l.customer_reference = v.customer_reference AND l.state = 'linked' LIMIT 1) l ON true
ORDER BY v.n`, site, customers)
		if err != nil {
			return err
		}
		outcomes, err = scanAll(rows, func(o *RowOutcome) []any { return []any{o} })
		return err
	})
	return outcomes, wrap("predict outcomes", err)
}
