package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"slices"
	"time"

	"partnerbilling/models/postgres"

	"github.com/jackc/pgx/v5"
)

// debitPhase is the DebitPhase of batch b at now.ms; $4 is LastAttemptBefore.
const debitPhase = `CASE WHEN now.ms >= b.settle_by THEN 'confirm' WHEN now.ms >= b.settle_by - $4 THEN 'close' ELSE 'attempt' END`

var (
	//go:embed debit_claim.sql
	claimChunkSQL string
	//go:embed debit_record.sql
	recordRowsSQL string
	//go:embed debit_park.sql
	parkChunkSQL string
	//go:embed debit_close_batch.sql
	closeBatchSQL string
	//go:embed debit_close_unsent.sql
	closeUnsentSQL string
)

// heldRetry is the delay before a task looks again at work that is held after a restore.
const heldRetry = 15 * time.Second

// ClaimChunk claims the due rows in one part of a task's chunk under the lease token, for RowLease.
// It returns no rows if others hold them or none is due. A row without a link is bound to the
// active link of its reference. ErrNotFound: the task or its batch is gone, and nothing is left to
// do.
func (s *Store) ClaimChunk(ctx context.Context, task TaskID, lease LeaseToken, part Part) (Chunk, error) {
	var chunk Chunk
	err := s.pg.Native(ctx, func(conn *pgx.Conn) error {
		var err error
		chunk, err = scanChunk(conn.QueryRow(ctx, claimChunkSQL, task, lease, RowLease.Milliseconds(),
			LastAttemptBefore.Milliseconds(), QueuedLease.Milliseconds(), part.First, part.Rows, RailMemory.Milliseconds()))
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

// claimedColumns are the claimed rows, one array a column.
type claimedColumns struct {
	index, deferrals                            []int32
	amount                                      []int64
	inDoubt, settled, called, forgotten, linked []bool
	customerReference, rowReference             []string
	customerID, agreementID                     []string
	link                                        []LinkID
}

func scanChunk(row pgx.Row) (Chunk, error) {
	var c Chunk
	var r claimedColumns
	err := row.Scan(&c.Task, &c.SiteID, &c.OrganisationID, &c.BatchID, &c.TraceID, &c.Currency, &c.BatchReference,
		&c.Generation,
		&c.Phase, &c.Cancelled, &c.Certain, &c.Epoch, &c.ClaimedAt, &c.Open,
		&r.index, &r.customerReference, &r.rowReference, &r.amount, &r.inDoubt, &r.settled, &r.called, &r.forgotten, &r.deferrals, &r.link,
		&r.linked, &r.customerID, &r.agreementID)
	if errors.Is(err, pgx.ErrNoRows) {
		return Chunk{}, ErrNotFound
	}
	if err != nil {
		return Chunk{}, err
	}
	key := NewBatchKey(c.SiteID, c.BatchReference, c.Generation)
	c.Rows = make([]ClaimedRow, len(r.index))
	for i := range c.Rows {
		c.Rows[i] = ClaimedRow{
			Index: int(r.index[i]), CustomerReference: r.customerReference[i], RailKey: key.Row(r.rowReference[i]),
			Amount: Amount(r.amount[i]), InDoubt: r.inDoubt[i], Settled: r.settled[i], Called: r.called[i], Forgotten: r.forgotten[i],
			Deferrals: int(r.deferrals[i]), Account: DebitAccount{
				LinkID: r.link[i], Linked: r.linked[i], CustomerID: r.customerID[i], AgreementID: r.agreementID[i],
			},
		}
	}
	slices.SortFunc(c.Rows, func(a, b ClaimedRow) int { return a.Index - b.Index })
	return c, nil
}

// bindRows binds each claimed row without a link to the active link of its reference. The binding
// is final.
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
    WHERE r.site_id = $1 AND r.batch_id = $2 AND r.row_index = ANY ($4::int[]) AND r.lease_token = $3
      AND r.link_id IS NULL
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

// HoldRows extends the lease of claimed rows and their task by RowLease, and reads their
// eligibility again. The answer leaves out rows that are settled or taken by another worker: the
// caller must stop work on them.
func (s *Store) HoldRows(ctx context.Context, c Chunk, rows []int) (map[int]Eligibility, error) {
	held, err := s.eligibilities(ctx, `
WITH held AS (
    UPDATE batch_rows r SET lease_until = statement_timestamp() + $6 * interval '1 ms'
    WHERE r.site_id = $1 AND r.batch_id = $2 AND r.row_index = ANY ($5::int[]) AND r.lease_token = $3
      AND r.lease_until > statement_timestamp() AND (r.state = 'inProgress' OR r.in_doubt)
    RETURNING r.row_index, r.link_id
), task AS (
    UPDATE outbox o SET redispatch_after = statement_timestamp() + $6 * interval '1 ms'
    WHERE o.id = $7 AND o.dispatched_at IS NOT NULL AND (SELECT count(*) FROM held) > 0
)
SELECT r.row_index, `+debitPhase+`, b.cancelled_at IS NOT NULL OR b.epoch < (SELECT cancelled_before FROM database_epoch),
       r.link_id, coalesce(l.state = 'linked', false), coalesce(l.customer_id, ''), coalesce(l.agreement_id, '')
FROM `+svcNow+` now (ms), batches b, held r LEFT JOIN customer_links l ON l.site_id = $1 AND l.id = r.link_id
WHERE b.site_id = $1 AND b.id = $2 AND b.epoch >= (SELECT held_before FROM database_epoch)`,
		c.SiteID, c.BatchID, c.Lease, LastAttemptBefore.Milliseconds(), rows, RowLease.Milliseconds(), c.Task)
	return held, wrap("hold rows", err)
}

// CheckRows reads again the eligibility of claimed rows whose lease lasts at least half a RowLease.
// Rows missing in the answer need HoldRows. It writes nothing, so it waits for no disk.
func (s *Store) CheckRows(ctx context.Context, c Chunk, rows []int) (map[int]Eligibility, error) {
	held, err := s.eligibilities(ctx, `
SELECT r.row_index, `+debitPhase+`, b.cancelled_at IS NOT NULL OR b.epoch < (SELECT cancelled_before FROM database_epoch),
       r.link_id, coalesce(l.state = 'linked', false), coalesce(l.customer_id, ''), coalesce(l.agreement_id, '')
FROM `+svcNow+` now (ms), batches b, batch_rows r LEFT JOIN customer_links l ON l.site_id = r.site_id AND l.id = r.link_id
WHERE b.site_id = $1 AND b.id = $2 AND r.site_id = $1 AND r.batch_id = $2 AND r.row_index = ANY ($5::int[])
  AND r.lease_token = $3
  AND r.lease_until > statement_timestamp() + $6 * interval '1 ms' AND (r.state = 'inProgress' OR r.in_doubt)
  AND b.epoch >= (SELECT held_before FROM database_epoch)`,
		c.SiteID, c.BatchID, c.Lease, LastAttemptBefore.Milliseconds(), rows, (RowLease / 2).Milliseconds())
	return held, wrap("check rows", err)
}

func (s *Store) eligibilities(ctx context.Context, query string, args ...any) (map[int]Eligibility, error) {
	type row struct {
		index int
		Eligibility
	}
	var found []row
	err := s.pg.Do(ctx, func() error {
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

// FinishRows records results of claimed rows in one statement. remaining is the number of the
// chunk's open rows whose end ends the task. It ignores rows that the worker no longer holds,
// except for successes, which it never drops. If the database's epoch has changed since the claim,
// it drops results without FromRail. It returns the rows that it settled or corrected.
func (s *Store) FinishRows(ctx context.Context, c Chunk, results []RowResult, remaining int) ([]Settled, error) {
	if len(results) == 0 {
		return nil, nil
	}
	v := resultColumnsOf(results)
	var settled []Settled
	err := s.pg.Native(ctx, func(conn *pgx.Conn) error {
		var err error
		settled, err = scanSettled(conn.QueryRow(ctx, recordRowsSQL, c.SiteID, c.BatchID, c.Lease, c.Epoch, c.ClaimedAt,
			RailMemory.Milliseconds(), c.Task, max(remaining, 1),
			v.index, v.outcome, v.word, v.release, v.retryAfter, v.calls, v.called, v.confirming, v.alert, v.key))
		return err
	})
	return settled, wrap("finish rows", err)
}

// resultColumns are results ordered by row, one array a column.
type resultColumns struct {
	index, calls                      []int32
	outcome, alert, key               []string
	word, release, called, confirming []bool
	retryAfter                        []int64
}

func resultColumnsOf(results []RowResult) resultColumns {
	results = slices.SortedFunc(slices.Values(results), func(a, b RowResult) int { return a.Index - b.Index })
	var v resultColumns
	for _, r := range results {
		v.index = append(v.index, int32(r.Index)) //nolint:gosec // at most MaxBatchRows
		v.calls = append(v.calls, int32(r.Calls)) //nolint:gosec // −1, 0 or 1
		v.outcome, v.alert, v.key = append(v.outcome, string(r.Outcome)), append(v.alert, r.Alert), append(v.key, r.RailKey)
		v.word, v.release = append(v.word, r.FromRail), append(v.release, r.Release)
		v.called, v.confirming = append(v.called, r.Called), append(v.confirming, r.Confirming)
		v.retryAfter = append(v.retryAfter, r.RetryAfter.Milliseconds())
	}
	return v
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

// ParkChunk ends a task's run with open rows left. The task becomes due with the first of them, or
// when the first lease of another worker would end. Without open rows, the task is done.
func (s *Store) ParkChunk(ctx context.Context, task TaskID) error {
	return s.exec(ctx, "park chunk", parkChunkSQL, task, LastAttemptBefore.Milliseconds(), ConfirmWithin.Milliseconds(),
		heldRetry.Milliseconds())
}

// CloseUnsentRows closes the rows of one batch past its last attempt that no debit call was begun
// for, and returns their number. It does not ask the rail. ErrNotFound: there is no such batch.
func (s *Store) CloseUnsentRows(ctx context.Context) (n int, err error) {
	var id BatchID
	err = s.pg.Do(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, closeUnsentSQL, LastAttemptBefore.Milliseconds(),
			RailMemory.Milliseconds()).Scan(&id, &n)
		return notFound(err, "batch whose time for attempts is over")
	})
	return n, wrap("close unsent rows", err)
}

// CloseOverdueBatch settles the open rows of one batch past its deadline: as timedOut if no debit
// call was begun, else as unconfirmed. Its tasks go on to ask the rail. ErrNotFound: no batch is
// overdue, or other workers are closing all of them.
func (s *Store) CloseOverdueBatch(ctx context.Context) (BatchID, error) {
	id, err := s.closeOverdue(ctx, `
SELECT site_id, id FROM batches WHERE settled_at IS NULL AND settle_by <= svc_now()
ORDER BY settle_by LIMIT 1 FOR UPDATE SKIP LOCKED`)
	return id, wrap("close overdue batch", err)
}

// closeIfOverdue does the same for one batch, so that no reader sees it open past its deadline,
// even before a sweep.
func (s *Store) closeIfOverdue(ctx context.Context, site SiteID, batch BatchID) error {
	_, err := s.closeOverdue(ctx, `
SELECT site_id, id FROM batches WHERE site_id = $1 AND id = $2 AND settled_at IS NULL AND settle_by <= svc_now() FOR UPDATE`,
		site, batch)
	if errors.Is(err, ErrNotFound) {
		return nil // settled in between
	}
	return err
}

// closeOverdue closes the batch that the query finds and locks.
func (s *Store) closeOverdue(ctx context.Context, find string, args ...any) (BatchID, error) {
	var id BatchID
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var site SiteID
		err := tx.Tx.Tx.QueryRowContext(ctx, find, args...).Scan(&site, &id)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		_, err = tx.Tx.Tx.ExecContext(ctx, closeBatchSQL, site, id, RailMemory.Milliseconds())
		return err
	})
	return id, err
}
