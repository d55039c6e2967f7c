package models

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// debitPhase is the DebitPhase of batch b at now.ms; $4 is LastAttemptBefore.
const debitPhase = `CASE WHEN now.ms >= b.settle_by THEN 'confirm' WHEN now.ms >= b.settle_by - $4 THEN 'close' ELSE 'attempt' END`

// claimChunkSQL claims, of a part of the chunk that a task names, the rows that are due and that nobody holds: pending ones, those
// whose worker has died (now in doubt), and after the deadline the unconfirmed ones. The task's own lease moves along
// last, where it would not outlast the rows' by a little: locks are taken rows first, then outbox. What is still open is counted
// only if it is not just what was claimed. The rows come as arrays, which cost a fraction of so many rows.
const claimChunkSQL = `
WITH chunk AS MATERIALIZED (
    SELECT o.id AS task, b.site_id, b.id, b.organisation_id, b.trace_id, b.currency, b.cancelled_at IS NOT NULL AS cancelled,
           o.first_row, o.last_row, o.first_row + $6::int AS part_first, least(o.last_row, o.first_row + $6::int + $7::int - 1) AS part_last,
           now.ms AS now,
           ` + debitPhase + ` AS phase
    FROM ` + svcNow + ` now (ms), outbox o JOIN batches b ON b.site_id = o.site_id AND b.id = o.subject_id
    WHERE o.id = $1
), claimed AS (
    UPDATE batch_rows r SET lease_token = $2, lease_until = clock_timestamp() + $3 * interval '1 ms',
        in_doubt = r.state <> 'pending',
        attempts = r.attempts + CASE WHEN r.state = 'pending' AND c.phase = 'attempt' THEN 1 ELSE 0 END,
        state = CASE WHEN r.state = 'settled' THEN r.state ELSE 'inProgress' END
    FROM chunk c
    WHERE r.site_id = c.site_id AND r.batch_id = c.id AND r.row_index BETWEEN c.part_first AND c.part_last
      AND (r.lease_until IS NULL OR r.lease_until <= clock_timestamp())
      AND (r.state <> 'settled' AND c.phase <> 'confirm' OR r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL)
      AND (coalesce(r.next_attempt_at, 0) <= c.now OR c.phase = 'close' AND r.state = 'pending')
    RETURNING r.site_id, r.row_index, r.customer_reference, r.amount, r.in_doubt, r.deferrals, r.link_id
), rows AS MATERIALIZED (
    SELECT count(*) AS n, array_agg(r.row_index) AS row_index, array_agg(r.customer_reference) AS customer_reference,
           array_agg(r.amount) AS amount, array_agg(r.in_doubt) AS in_doubt, array_agg(r.deferrals) AS deferrals,
           array_agg(r.link_id) AS link_id, array_agg(coalesce(l.state = 'linked', false)) AS linked,
           array_agg(coalesce(l.customer_id, '')) AS customer_id, array_agg(coalesce(l.agreement_id, '')) AS agreement_id
    FROM claimed r LEFT JOIN customer_links l ON l.site_id = r.site_id AND l.id = r.link_id
), held AS (
    UPDATE outbox o SET redispatch_after = clock_timestamp() + $3 * interval '1 ms'
    WHERE o.id = $1 AND o.dispatched_at IS NOT NULL AND (SELECT n FROM rows) > 0
      AND o.redispatch_after NOT BETWEEN clock_timestamp() + $3 * interval '1 ms' AND clock_timestamp() + $5 * interval '1 ms'
)
SELECT c.task, c.site_id, c.organisation_id, c.id, c.trace_id, c.currency, c.phase, c.cancelled,
       CASE WHEN $6 > 0 THEN 0 WHEN r.n = c.last_row - c.first_row + 1 THEN r.n ELSE (
           SELECT count(*) FROM batch_rows w
           WHERE w.site_id = c.site_id AND w.batch_id = c.id AND w.row_index BETWEEN c.first_row AND c.last_row
             AND (w.state <> 'settled' OR w.outcome = 'unconfirmed' AND w.corrected_outcome IS NULL)) END,
       r.row_index, r.customer_reference, r.amount, r.in_doubt, r.deferrals, r.link_id, r.linked, r.customer_id, r.agreement_id
FROM chunk c, rows r`

// ClaimChunk claims what is due of a part of a task's rows under the lease token, for RowLease. No rows: others hold them, or
// none is due.
// ErrNotFound: the task or its batch is gone, there is nothing left to do. A row without a link binds now to the one that is
// active for its reference.
func (s *Store) ClaimChunk(ctx context.Context, task TaskID, lease LeaseToken, part Part) (Chunk, error) {
	var chunk Chunk
	err := s.native(ctx, func(conn *pgx.Conn) error {
		var err error
		chunk, err = scanChunk(conn.QueryRow(ctx, claimChunkSQL, task, lease, RowLease.Milliseconds(),
			LastAttemptBefore.Milliseconds(), QueuedLease.Milliseconds(), part.First, part.Rows))
		return err
	})
	if err != nil {
		return Chunk{}, wrap("claim chunk", err)
	}
	chunk.Lease = lease
	if chunk.Phase == PhaseAttempt {
		err = s.bindRows(ctx, &chunk)
	}
	return chunk, wrap("bind rows", err)
}

// claimedColumns are the claimed rows as they come, one array a column.
type claimedColumns struct {
	index, deferrals                  []int32
	amount                            []int64
	inDoubt, linked                   []bool
	reference, customerID, agreements []string
	link                              []LinkID
}

func scanChunk(row pgx.Row) (Chunk, error) {
	var c Chunk
	var r claimedColumns
	err := row.Scan(&c.Task, &c.SiteID, &c.OrganisationID, &c.BatchID, &c.TraceID, &c.Currency, &c.Phase, &c.Cancelled, &c.Open,
		&r.index, &r.reference, &r.amount, &r.inDoubt, &r.deferrals, &r.link, &r.linked, &r.customerID, &r.agreements)
	if errors.Is(err, pgx.ErrNoRows) {
		return Chunk{}, ErrNotFound
	}
	if err != nil {
		return Chunk{}, err
	}
	c.Rows = make([]ClaimedRow, len(r.index))
	for i := range c.Rows {
		c.Rows[i] = ClaimedRow{
			Index: int(r.index[i]), CustomerReference: r.reference[i], Amount: Amount(r.amount[i]), InDoubt: r.inDoubt[i],
			Deferrals: int(r.deferrals[i]), Account: DebitAccount{
				LinkID: r.link[i], Linked: r.linked[i], CustomerID: r.customerID[i], AgreementID: r.agreements[i],
			},
		}
	}
	slices.SortFunc(c.Rows, func(a, b ClaimedRow) int { return a.Index - b.Index })
	return c, nil
}

// bindRows binds those claimed rows that have no link to the one that is active for their reference now, for good.
func (s *Store) bindRows(ctx context.Context, c *Chunk) error {
	var unbound []int
	for _, r := range c.Rows {
		if r.Account.LinkID.IsZero() {
			unbound = append(unbound, r.Index)
		}
	}
	if len(unbound) == 0 {
		return nil
	}
	bound, err := s.eligibilities(ctx, `
WITH bound AS (
    UPDATE batch_rows r SET link_id = l.id FROM customer_links l
    WHERE r.site_id = $1 AND r.batch_id = $2 AND r.row_index = ANY ($4::int[]) AND r.lease_token = $3 AND r.link_id IS NULL
      AND l.site_id = r.site_id AND l.customer_reference = r.customer_reference
      AND l.state IN ('invited', 'linked') AND (l.state = 'linked' OR l.expires_at > svc_now())
    RETURNING r.row_index, l.id, l.state, l.customer_id, l.agreement_id
)
SELECT row_index, 'attempt', false, id, state = 'linked', coalesce(customer_id, ''), coalesce(agreement_id, '') FROM bound`,
		c.SiteID, c.BatchID, c.Lease, unbound)
	for i, r := range c.Rows {
		if row, ok := bound[r.Index]; ok {
			c.Rows[i].Account = row.Account
		}
	}
	return err
}

// HoldRows extends the lease of claimed rows and of their task by RowLease, and reads again whether they may be debited. Rows
// that another worker has taken, or that are settled, are missing in the answer: they must be left alone.
func (s *Store) HoldRows(ctx context.Context, c Chunk, rows []int) (map[int]Eligibility, error) {
	held, err := s.eligibilities(ctx, `
WITH held AS (
    UPDATE batch_rows r SET lease_until = clock_timestamp() + $6 * interval '1 ms'
    WHERE r.site_id = $1 AND r.batch_id = $2 AND r.row_index = ANY ($5::int[]) AND r.lease_token = $3
      AND r.lease_until > clock_timestamp() AND (r.state = 'inProgress' OR r.outcome = 'unconfirmed')
    RETURNING r.row_index, r.link_id
), task AS (
    UPDATE outbox o SET redispatch_after = clock_timestamp() + $6 * interval '1 ms'
    WHERE o.id = $7 AND o.dispatched_at IS NOT NULL AND (SELECT count(*) FROM held) > 0
)
SELECT r.row_index, `+debitPhase+`, b.cancelled_at IS NOT NULL,
       r.link_id, coalesce(l.state = 'linked', false), coalesce(l.customer_id, ''), coalesce(l.agreement_id, '')
FROM `+svcNow+` now (ms), batches b, held r LEFT JOIN customer_links l ON l.site_id = $1 AND l.id = r.link_id
WHERE b.site_id = $1 AND b.id = $2`,
		c.SiteID, c.BatchID, c.Lease, LastAttemptBefore.Milliseconds(), rows, RowLease.Milliseconds(), c.Task)
	return held, wrap("hold rows", err)
}

// CheckRows reads again whether claimed rows may be debited, of those that are the claim's for half a RowLease at least. What is missing
// in the answer needs HoldRows. It writes nothing, and so waits for no disk.
func (s *Store) CheckRows(ctx context.Context, c Chunk, rows []int) (map[int]Eligibility, error) {
	held, err := s.eligibilities(ctx, `
SELECT r.row_index, `+debitPhase+`, b.cancelled_at IS NOT NULL,
       r.link_id, coalesce(l.state = 'linked', false), coalesce(l.customer_id, ''), coalesce(l.agreement_id, '')
FROM `+svcNow+` now (ms), batches b, batch_rows r LEFT JOIN customer_links l ON l.site_id = r.site_id AND l.id = r.link_id
WHERE b.site_id = $1 AND b.id = $2 AND r.site_id = $1 AND r.batch_id = $2 AND r.row_index = ANY ($5::int[]) AND r.lease_token = $3
  AND r.lease_until > clock_timestamp() + $6 * interval '1 ms' AND (r.state = 'inProgress' OR r.outcome = 'unconfirmed')`,
		c.SiteID, c.BatchID, c.Lease, LastAttemptBefore.Milliseconds(), rows, (RowLease / 2).Milliseconds())
	return held, wrap("check rows", err)
}

func (s *Store) eligibilities(ctx context.Context, query string, args ...any) (map[int]Eligibility, error) {
	type row struct {
		index int
		Eligibility
	}
	var found []row
	err := s.statement(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		found, err = scanAll(rows, func(r *row) []any {
			a := &r.Account
			return []any{&r.index, &r.Phase, &r.Cancelled, &a.LinkID, &a.Linked, &a.CustomerID, &a.AgreementID}
		})
		return err
	})
	byIndex := make(map[int]Eligibility, len(found))
	for _, r := range found {
		byIndex[r.index] = r.Eligibility
	}
	return byIndex, err
}

// finishSQL writes what a worker has learnt about rows. A success is the truth whoever brings it: it settles a row that is
// open under any lease or none, and corrects one that was settled otherwise. Everything else counts only under the
// lease. Counters, ledger and alerts derive from the rows that came back, the task is done if those were all.
const finishSQL = `
WITH b AS MATERIALIZED (
    SELECT site_id, id, organisation_id, currency, trace_id, cancelled_at IS NOT NULL AS cancelled, ` + svcNow + ` AS now
    FROM batches WHERE site_id = $1 AND id = $2 FOR UPDATE
), v AS (
    SELECT i, nullif(o, '')::row_outcome AS outcome, release, retry_after, calls
    FROM unnest($4::int[], $5::text[], $6::bool[], $7::bigint[], $8::int[]) AS v (i, o, release, retry_after, calls)
), r AS (
    UPDATE batch_rows r SET
        attempts = r.attempts + v.calls,
        deferrals = r.deferrals + CASE WHEN v.outcome IS NULL THEN 1 ELSE 0 END,
        state = CASE WHEN r.state = 'settled' OR v.outcome IS NOT NULL OR v.release AND b.cancelled THEN 'settled'
                     WHEN v.release THEN 'pending' ELSE r.state END::row_state,
        outcome = CASE WHEN r.state = 'settled' THEN r.outcome
                       WHEN v.outcome = 'timedOut' AND b.cancelled THEN 'cancelled'
                       WHEN v.outcome IS NOT NULL THEN v.outcome
                       WHEN v.release AND b.cancelled THEN 'cancelled' END,
        corrected_outcome = CASE WHEN r.state = 'settled' THEN v.outcome END,
        settled_at = CASE WHEN r.state = 'settled' THEN r.settled_at
                          WHEN v.outcome IS NOT NULL OR v.release AND b.cancelled THEN b.now END,
        in_doubt = v.outcome IS NULL AND (r.state = 'settled' OR NOT v.release),
        next_attempt_at = CASE WHEN v.outcome IS NULL THEN b.now + v.retry_after END,
        lease_token = NULL, lease_until = NULL
    FROM v, b
    WHERE r.site_id = b.site_id AND r.batch_id = b.id AND r.row_index = v.i AND r.row_index BETWEEN $11 AND $12
      AND (r.state = 'inProgress' AND r.lease_token = $3 OR r.state <> 'settled' AND v.outcome = 'succeeded'
        OR r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL AND r.lease_token = $3
        OR r.state = 'settled' AND v.outcome = 'succeeded' AND r.outcome <> 'succeeded' AND r.corrected_outcome IS DISTINCT FROM 'succeeded')
    RETURNING r.row_index, r.amount, coalesce(r.corrected_outcome, r.outcome) AS outcome,
              r.state = 'settled' AND NOT r.in_doubt AS closed, r.corrected_outcome IS NOT NULL AS corrected
), n AS (
    SELECT count(*) FILTER (WHERE closed AND NOT corrected)::int AS settled,
           count(*) FILTER (WHERE outcome = 'succeeded' AND NOT corrected)::int AS succeeded,
           coalesce(sum(amount) FILTER (WHERE outcome = 'succeeded' AND NOT corrected), 0)::bigint AS amount,
           count(*) FILTER (WHERE closed) AS closed,
           array_agg(row_index) FILTER (WHERE closed) AS indexes, array_agg(outcome::text) FILTER (WHERE closed) AS outcomes,
           array_agg(corrected) FILTER (WHERE closed) AS corrections
    FROM r
), counted AS (
    UPDATE batches c SET settled_count = c.settled_count + n.settled, succeeded_count = c.succeeded_count + n.succeeded,
        succeeded_amount = c.succeeded_amount + n.amount,
        state = CASE WHEN c.settled_count + n.settled = c.row_count THEN 'settled'::batch_state ELSE c.state END,
        settled_at = CASE WHEN c.settled_count + n.settled = c.row_count THEN b.now END
    FROM n, b WHERE c.site_id = b.site_id AND c.id = b.id AND n.settled > 0
), ledger AS (
    INSERT INTO ledger_entries (source_id, source_index, account, site_id, currency, amount, recorded_at)
    SELECT b.id, r.row_index, a.account, b.site_id, b.currency, a.sign * r.amount, b.now
    FROM r, b, (VALUES ('railClearing'::ledger_account, 1), ('sitePayable', -1)) AS a (account, sign)
    WHERE r.outcome = 'succeeded'
), alert AS (
    INSERT INTO alerts (kind, subject, organisation_id, site_id, detail, trace_id, raised_at)
    SELECT 'lateTruth', b.id || ':' || r.row_index, b.organisation_id, b.site_id, r.outcome::text, b.trace_id, b.now
    FROM r, b WHERE r.corrected
    ON CONFLICT (kind, subject) DO UPDATE SET detail = excluded.detail, raised_at = excluded.raised_at, closed_at = NULL
), done AS (
    DELETE FROM outbox WHERE id = $9 AND (SELECT closed FROM n) >= $10
)
SELECT indexes, outcomes, corrections FROM n`

// FinishRows writes what is now known of claimed rows, in one statement. remaining is how many of the chunk's open rows
// must close here for its task to be done. Rows that the worker no longer holds are left alone, but for a success, which
// is never dropped. It returns the rows that were settled or corrected.
func (s *Store) FinishRows(ctx context.Context, c Chunk, results []RowResult, remaining int) ([]Settled, error) {
	n := len(results)
	if n == 0 {
		return nil, nil
	}
	index, outcome, release := make([]int32, n), make([]string, n), make([]bool, n)
	retryAfter, calls := make([]int64, n), make([]int32, n)
	for i, r := range results {
		index[i], outcome[i], release[i] = int32(r.Index), string(r.Outcome), r.Release //nolint:gosec // at most MaxBatchRows
		retryAfter[i], calls[i] = r.RetryAfter.Milliseconds(), int32(r.Calls)           //nolint:gosec // −1, 0 or 1
	}
	var settled []Settled
	err := s.native(ctx, func(conn *pgx.Conn) error {
		var err error
		settled, err = scanSettled(conn.QueryRow(ctx, finishSQL, c.SiteID, c.BatchID, c.Lease, index, outcome, release, retryAfter,
			calls, c.Task, max(remaining, 1), slices.Min(index), slices.Max(index)))
		return err
	})
	return settled, wrap("finish rows", err)
}

func scanSettled(row pgx.Row) ([]Settled, error) {
	var indexes []int32
	var outcomes []RowOutcome
	var corrections []bool
	if err := row.Scan(&indexes, &outcomes, &corrections); err != nil {
		return nil, err
	}
	settled := make([]Settled, len(indexes))
	for i := range settled {
		settled[i] = Settled{Index: int(indexes[i]), Outcome: outcomes[i], Corrected: corrections[i]}
	}
	return settled, nil
}

// ParkChunk ends a task's run that left rows open: it goes out again when the first of them is due, or, while others
// hold them all, when the first of their leases would run out. A chunk with no open row left is done.
func (s *Store) ParkChunk(ctx context.Context, task TaskID) error {
	return s.exec(ctx, "park chunk", `
WITH open AS (
    SELECT count(*) AS n,
           min(CASE WHEN r.state <> 'settled' AND now.ms >= b.settle_by THEN now.ms + 1000 -- the sweep comes first
                    WHEN now.ms < b.settle_by - $2 THEN least(coalesce(r.next_attempt_at, 0), b.settle_by - $2)
                    ELSE coalesce(r.next_attempt_at, 0) END)
               FILTER (WHERE NOT coalesce(r.lease_until > clock_timestamp(), false)) AS due,
           min(r.lease_until) FILTER (WHERE r.lease_until > clock_timestamp()) AS lease,
           bool_and(now.ms >= b.settle_by + $3) AS over
    FROM outbox o JOIN batches b ON b.site_id = o.site_id AND b.id = o.subject_id
    JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id AND r.row_index BETWEEN o.first_row AND o.last_row,
    `+svcNow+` now (ms)
    WHERE o.id = $1 AND (r.state <> 'settled' OR r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL)
), done AS (
    DELETE FROM outbox o USING open WHERE o.id = $1 AND (open.n = 0 OR open.over)
)
UPDATE outbox o SET available_at = coalesce(open.due, o.available_at),
    dispatched_at = CASE WHEN open.due IS NULL THEN o.dispatched_at END,
    redispatch_after = CASE WHEN open.due IS NULL AND o.dispatched_at IS NOT NULL THEN open.lease END
FROM open WHERE o.id = $1 AND open.n > 0 AND NOT open.over`, task, LastAttemptBefore.Milliseconds(), ConfirmWithin.Milliseconds())
}

// CloseOverdueBatch settles, as unconfirmed, what is still open of one batch whose deadline has come. Its tasks live on and
// ask the rail for the truth. ErrNotFound: no batch is overdue, but for those that others are closing.
func (s *Store) CloseOverdueBatch(ctx context.Context) (BatchID, error) {
	id, err := s.closeOverdue(ctx, `
SELECT site_id, id FROM batches WHERE settled_at IS NULL AND settle_by <= svc_now()
ORDER BY settle_by LIMIT 1 FOR UPDATE SKIP LOCKED`)
	return id, wrap("close overdue batch", err)
}

// closeIfOverdue does that for one batch, so that nobody reads it as open after its deadline, whether or not a sweep has
// run.
func (s *Store) closeIfOverdue(ctx context.Context, site SiteID, batch BatchID) error {
	_, err := s.closeOverdue(ctx, `
SELECT site_id, id FROM batches WHERE site_id = $1 AND id = $2 AND settled_at IS NULL AND settle_by <= svc_now() FOR UPDATE`,
		site, batch)
	if errors.Is(err, ErrNotFound) {
		return nil // settled meanwhile
	}
	return err
}

// closeOverdue closes the batch that the query finds and locks.
func (s *Store) closeOverdue(ctx context.Context, find string, args ...any) (BatchID, error) {
	var id BatchID
	err := s.inTx(ctx, func(tx bun.Tx) error {
		var site SiteID
		err := tx.Tx.QueryRowContext(ctx, find, args...).Scan(&site, &id)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		_, err = tx.Tx.ExecContext(ctx, `
WITH r AS (
    UPDATE batch_rows SET state = 'settled', outcome = 'unconfirmed', in_doubt = true, settled_at = svc_now(),
        next_attempt_at = NULL, lease_token = NULL, lease_until = NULL
    WHERE site_id = $1 AND batch_id = $2 AND state <> 'settled' RETURNING 1
), n AS (SELECT count(*)::int AS settled FROM r), alert AS (
    INSERT INTO alerts (kind, subject, organisation_id, site_id, detail, trace_id, raised_at)
    SELECT 'rowsUnconfirmed', b.id::text, b.organisation_id, b.site_id, n.settled || ' rows', b.trace_id, svc_now()
    FROM batches b, n WHERE b.site_id = $1 AND b.id = $2
    ON CONFLICT (kind, subject) DO NOTHING
)
UPDATE batches b SET settled_count = b.settled_count + n.settled, state = 'settled', settled_at = svc_now()
FROM n WHERE b.site_id = $1 AND b.id = $2`, site, id)
		return err
	})
	return id, err
}
