package models

import (
	"context"
	_ "embed" // statements
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"partnerbilling/models/postgres"
)

// eligibilityColumns are the columns that decide an Eligibility: of the batch b, its row r and the
// row's link l.
const eligibilityColumns = `r.row_index,
       debit_phase(now.ms, b.settle_by, :last_attempt_before) AS phase,
       batch_cancelled(b.cancelled_at, b.epoch, (SELECT cancelled_before FROM database_epoch)) AS cancelled,
       EXISTS (SELECT FROM debit_pauses d WHERE d.organisation_id = b.organisation_id) AS paused,
       r.link_id, coalesce(l.state = 'linked', false) AS linked, l.party`

var (
	//go:embed debit_claim.sql
	debitClaimText string
	claimChunkSQL  = postgres.SQL(debitClaimText)
	//go:embed debit_record.sql
	debitRecordText string
	recordRowsSQL   = postgres.SQL(debitRecordText)
	//go:embed debit_park.sql
	debitParkText string
	parkChunkSQL  = postgres.SQL(debitParkText)
	//go:embed debit_close_batch.sql
	debitCloseBatchText string
	closeBatchSQL       = postgres.SQL(debitCloseBatchText)
	//go:embed debit_close_unsent.sql
	debitCloseUnsentText string
	closeUnsentSQL       = postgres.SQL(debitCloseUnsentText)

	abandonClaimSQL = postgres.SQL(`
UPDATE batch_rows r SET lease_until = statement_timestamp()
FROM outbox o
WHERE o.id = :task AND r.site_id = o.site_id AND r.batch_id = o.subject_id
  AND r.row_index BETWEEN o.first_row + :part_first::int
      AND least(o.last_row, o.first_row + :part_first::int + :part_rows::int - 1)
  AND r.lease_token = :lease AND r.lease_until > statement_timestamp()`)

	//go:embed debit_bind.sql
	debitBindText string
	bindRowsSQL   = postgres.SQL(debitBindText)
	extendRowsSQL = postgres.SQL(`
WITH b AS MATERIALIZED (
    -- Empty if the batch is held after a restore: the statement then changes nothing.
    SELECT b.organisation_id, b.settle_by, b.cancelled_at, b.epoch FROM batches b
    WHERE b.site_id = :site AND b.id = :batch AND b.epoch >= (SELECT held_before FROM database_epoch)
), r AS (
    UPDATE batch_rows r SET lease_until = statement_timestamp() + :row_lease * interval '1 ms'
    WHERE r.site_id = :site AND r.batch_id = :batch AND r.row_index = ANY (:rows::int[]) AND r.lease_token = :lease
      AND r.lease_until > statement_timestamp() AND (r.state = 'inProgress' OR r.in_doubt)
      AND EXISTS (SELECT FROM b)
    RETURNING r.row_index, r.link_id
), task AS (
    -- The dispatched task, unless the worker has lost all the rows: it is then dispatched again.
    UPDATE outbox o SET redispatch_after = statement_timestamp() + :row_lease * interval '1 ms'
    WHERE o.id = :task AND o.dispatched_at IS NOT NULL AND (SELECT count(*) FROM r) > 0
)
SELECT ` + eligibilityColumns + `
FROM ` + svcNow + ` now (ms), b, r LEFT JOIN customer_links l ON l.site_id = :site AND l.id = r.link_id`)
	checkRowsSQL = postgres.SQL(`
SELECT ` + eligibilityColumns + `
FROM ` + svcNow + ` now (ms), batches b,
     batch_rows r LEFT JOIN customer_links l ON l.site_id = r.site_id AND l.id = r.link_id
WHERE b.site_id = :site AND b.id = :batch AND r.site_id = :site AND r.batch_id = :batch
  AND r.row_index = ANY (:rows::int[]) AND r.lease_token = :lease
  AND r.lease_until > statement_timestamp() + :lasting * interval '1 ms' AND (r.state = 'inProgress' OR r.in_doubt)
  AND b.epoch >= (SELECT held_before FROM database_epoch)`)
	lockOverdueSQL = postgres.SQL(`
SELECT site_id, id FROM batches WHERE settled_at IS NULL AND settle_by <= svc_now()
ORDER BY settle_by LIMIT 1 FOR UPDATE SKIP LOCKED`)
	lockOverdueBatchSQL = postgres.SQL(`
SELECT site_id, id FROM batches
WHERE site_id = :site AND id = :batch AND settled_at IS NULL AND settle_by <= svc_now() FOR UPDATE`)
)

const (
	// heldRetry is the delay before a task looks again at work that is held after a restore.
	heldRetry = 15 * time.Second
	// sweepDelay is the delay of a task with an unsettled row past its deadline. Meanwhile the
	// sweep settles the row.
	sweepDelay = time.Second
)

// ClaimChunk claims the due rows in one part of a task's chunk under the lease token, for RowLease.
// The Chunk has no rows if none is due, or if other workers hold them. While debits may begin,
// ClaimChunk binds each claimed row without a link to the active link of its reference.
// ErrNotFound: the task or its batch is gone, and nothing is left to do.
func (s *Store) ClaimChunk(ctx context.Context, task TaskID, lease LeaseToken, part Part) (Chunk, error) {
	args, err := claimChunkSQL.Bind(postgres.Args{
		"task": task, "lease": lease, "part_first": part.First, "part_rows": part.Rows,
		"row_lease": RowLease.Milliseconds(), "queued_lease": QueuedLease.Milliseconds(),
		"last_attempt_before": LastAttemptBefore.Milliseconds(), "rail_memory": RailMemory.Milliseconds(),
	})
	if err != nil {
		return Chunk{}, err
	}
	var claimed claimedRow
	err = s.pg.Native(ctx, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, claimChunkSQL.Text(), args...) // CollectExactlyOneRow returns its error
		claimed, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[claimedRow])
		return err
	})
	if err != nil {
		return Chunk{}, wrap("claim chunk", notFound(err, "task"))
	}
	chunk, err := s.chunkOf(&claimed)
	if err != nil {
		return Chunk{}, wrap("claim chunk", err)
	}
	chunk.Lease = lease
	if chunk.Phase == PhaseAttempt {
		err = s.bindRows(ctx, &chunk)
	}
	return chunk, wrap("bind rows", err)
}

// AbandonClaim ends the leases of the rows that ClaimChunk has claimed under the lease token in one
// part of a task's chunk. It is for a claim whose answer was lost; no rail call may have begun for
// its rows. The next claim cannot know that, and finds the rows in doubt.
func (s *Store) AbandonClaim(ctx context.Context, task TaskID, lease LeaseToken, part Part) error {
	_, err := s.pg.Run(ctx, abandonClaimSQL, postgres.Args{
		"task": task, "lease": lease, "part_first": part.First, "part_rows": part.Rows,
	})
	return wrap("abandon claim", err)
}

// claimedRow is the one row of claimChunkSQL: the chunk, and one array for each column of its rows.
type claimedRow struct {
	Task              TaskID
	SiteID            SiteID
	OrganisationID    OrganisationID
	BatchID           BatchID
	TraceID           TraceID
	Currency          string
	BatchReference    string
	Generation        int
	Phase             DebitPhase
	Cancelled         bool
	Paused            bool
	Certain           bool
	Epoch             int
	ClaimedAt         Millis
	Open              int
	RowIndex          []int32
	CustomerReference []string
	RowReference      []string
	Amount            []int64
	InDoubt           []bool
	Settled           []bool
	CalledBefore      []bool
	Forgotten         []bool
	Deferrals         []int32
	LinkID            []LinkID
	Linked            []bool
	Party             [][]byte // sealed
}

// chunkOf returns the row as a Chunk, with its rows ordered by index.
func (s *Store) chunkOf(r *claimedRow) (Chunk, error) {
	c := Chunk{
		Task: r.Task, SiteID: r.SiteID, OrganisationID: r.OrganisationID, BatchID: r.BatchID, TraceID: r.TraceID,
		Currency: r.Currency, BatchReference: r.BatchReference, Generation: r.Generation, Phase: r.Phase,
		Cancelled: r.Cancelled, Paused: r.Paused, Certain: r.Certain, Epoch: r.Epoch, ClaimedAt: r.ClaimedAt,
		Open: r.Open, Rows: make([]ClaimedRow, len(r.RowIndex)),
	}
	key := NewBatchKey(c.SiteID, c.BatchReference, c.Generation)
	for i := range c.Rows {
		account, err := s.account(r.LinkID[i], r.Linked[i], r.Party[i])
		if err != nil {
			return c, err
		}
		c.Rows[i] = ClaimedRow{
			Index: int(r.RowIndex[i]), CustomerReference: r.CustomerReference[i],
			RailKey: key.Row(r.RowReference[i]), Amount: Amount(r.Amount[i]), InDoubt: r.InDoubt[i],
			Settled: r.Settled[i], CalledBefore: r.CalledBefore[i], Forgotten: r.Forgotten[i],
			Deferrals: int(r.Deferrals[i]), Account: account,
		}
	}
	slices.SortFunc(c.Rows, func(a, b ClaimedRow) int { return a.Index - b.Index })
	return c, nil
}

// account returns the account of a link. sealed is the link's customer and agreement.
func (s *Store) account(link LinkID, linked bool, sealed []byte) (DebitAccount, error) {
	party, unreadable, err := readParty(s, sealed, link)
	return DebitAccount{
		LinkID: link, Linked: linked, CustomerID: party.CustomerID, AgreementID: party.AgreementID,
		Unreadable: unreadable,
	}, err
}

// bindRows binds each claimed row without a link to the active link of its reference, if there is
// one. The binding is final.
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
	bound, err := s.eligibilities(ctx, bindRowsSQL, postgres.Args{
		"site": c.SiteID, "batch": c.BatchID, "lease": c.Lease, "rows": unbound,
	})
	for i, r := range c.Rows {
		if row, ok := bound[r.Index]; ok {
			c.Rows[i].Account = row.Account
		}
	}
	return err
}

// ExtendRows extends the leases of claimed rows and their task for RowLease, and reads the rows'
// eligibility again, by row index. The answer leaves out rows with a final outcome, rows that the
// caller no longer leases, and rows held after a restore: the caller must stop work on them. Their
// leases are not extended, nor is that of a task without other rows.
func (s *Store) ExtendRows(ctx context.Context, c Chunk, rows []int) (map[int]Eligibility, error) {
	held, err := s.eligibilities(ctx, extendRowsSQL, postgres.Args{
		"site": c.SiteID, "batch": c.BatchID, "lease": c.Lease, "rows": rows, "task": c.Task,
		"row_lease": RowLease.Milliseconds(), "last_attempt_before": LastAttemptBefore.Milliseconds(),
	})
	return held, wrap("extend rows", err)
}

// CheckRows reads the eligibility of claimed rows again, by row index. The answer has only rows
// whose lease lasts for more than half a RowLease; the others need ExtendRows. CheckRows writes
// nothing, so it waits for no disk.
func (s *Store) CheckRows(ctx context.Context, c Chunk, rows []int) (map[int]Eligibility, error) {
	held, err := s.eligibilities(ctx, checkRowsSQL, postgres.Args{
		"site": c.SiteID, "batch": c.BatchID, "lease": c.Lease, "rows": rows,
		"lasting": (RowLease / 2).Milliseconds(), "last_attempt_before": LastAttemptBefore.Milliseconds(),
	})
	return held, wrap("check rows", err)
}

// eligibilities runs a statement whose rows are eligibilities, and returns them by row index.
func (s *Store) eligibilities(
	ctx context.Context, statement postgres.Statement, args postgres.Args,
) (map[int]Eligibility, error) {
	var rows []struct {
		RowIndex  int
		Phase     DebitPhase
		Cancelled bool
		Paused    bool
		LinkID    LinkID
		Linked    bool
		Party     []byte // sealed
	}
	err := s.pg.Select(ctx, statement, args, &rows)
	byIndex := make(map[int]Eligibility, len(rows))
	for _, r := range rows {
		account, err := s.account(r.LinkID, r.Linked, r.Party)
		if err != nil {
			return nil, err
		}
		byIndex[r.RowIndex] = Eligibility{r.Phase, r.Cancelled, r.Paused, account}
	}
	return byIndex, err
}

// FinishRows records results of claimed rows in one statement, and returns the rows that it settled
// or corrected. remaining is the number of the chunk's open rows: if FinishRows closes that many,
// the task is done.
//
// FinishRows ignores a result if the worker no longer holds the row, or if the database's epoch has
// changed since the claim and FromRail is not set. It ignores no success from the rail.
func (s *Store) FinishRows(ctx context.Context, c Chunk, results []RowResult, remaining int) ([]SettledRow, error) {
	if len(results) == 0 {
		return nil, nil
	}
	v := resultColumnsOf(results)
	args, err := recordRowsSQL.Bind(postgres.Args{
		"site": c.SiteID, "batch": c.BatchID, "lease": c.Lease, "epoch": c.Epoch, "claimed_at": c.ClaimedAt,
		"rail_memory": RailMemory.Milliseconds(), "task": c.Task, "remaining": max(remaining, 1),
		"indexes": v.index, "outcomes": v.outcome, "from_rail": v.fromRail, "releases": v.release,
		"retry_after": v.retryAfter, "calls": v.calls, "answered": v.answered, "confirming": v.confirming,
		"alerts": v.alert, "keys": v.key,
	})
	if err != nil {
		return nil, err
	}
	var closed closedRows
	err = s.pg.Native(ctx, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, recordRowsSQL.Text(), args...) // CollectExactlyOneRow returns its error
		closed, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[closedRows])
		return err
	})
	return closed.settled(), wrap("finish rows", err)
}

// resultColumns are the fields of results, one array a field, ordered by row.
type resultColumns struct {
	index, calls                            []int32
	outcome, alert, key                     []string
	fromRail, release, answered, confirming []bool
	retryAfter                              []int64
}

func resultColumnsOf(results []RowResult) resultColumns {
	results = slices.SortedFunc(slices.Values(results), func(a, b RowResult) int { return a.Index - b.Index })
	var v resultColumns
	for _, r := range results {
		v.index = append(v.index, int32(r.Index)) //nolint:gosec // at most MaxBatchRows
		v.calls = append(v.calls, int32(r.Calls)) //nolint:gosec // −1, 0 or 1
		v.outcome, v.key = append(v.outcome, string(r.Outcome)), append(v.key, r.RailKey)
		v.alert = append(v.alert, r.Alert)
		v.fromRail, v.release = append(v.fromRail, r.FromRail), append(v.release, r.Release)
		v.answered, v.confirming = append(v.answered, r.Answered), append(v.confirming, r.Confirming)
		v.retryAfter = append(v.retryAfter, r.RetryAfter.Milliseconds())
	}
	return v
}

// closedRows is the one row of recordRowsSQL: one array for each column of the rows that it closed.
type closedRows struct {
	Indexes     []int32
	Outcomes    []RowOutcome
	Corrections []bool
}

func (r *closedRows) settled() []SettledRow {
	settled := make([]SettledRow, len(r.Indexes))
	for i := range settled {
		settled[i] = SettledRow{Index: int(r.Indexes[i]), Outcome: r.Outcomes[i], Corrected: r.Corrections[i]}
	}
	return settled
}

// ParkChunk ends a run of a task that may have left rows of its chunk open. The task becomes due
// when the first open row is due or, if other workers hold them all, when the first lease ends. If
// no row is open, the task is done.
func (s *Store) ParkChunk(ctx context.Context, task TaskID) error {
	_, err := s.pg.Run(ctx, parkChunkSQL, postgres.Args{
		"task": task, "last_attempt_before": LastAttemptBefore.Milliseconds(),
		"confirm_within": ConfirmWithin.Milliseconds(), "held_retry": heldRetry.Milliseconds(),
		"sweep_delay": sweepDelay.Milliseconds(),
	})
	return wrap("park chunk", err)
}

// CloseUnsentRows picks one open batch whose time for attempts is over, closes its rows that never
// had a debit call, and returns their number. It does not ask the rail. ErrNotFound: there is no
// such batch.
func (s *Store) CloseUnsentRows(ctx context.Context) (n int, err error) {
	err = s.pg.Get(ctx, closeUnsentSQL, postgres.Args{
		"last_attempt_before": LastAttemptBefore.Milliseconds(), "rail_memory": RailMemory.Milliseconds(),
	}, &n)
	err = notFound(err, "batch whose time for attempts is over")
	return n, wrap("close unsent rows", err)
}

// CloseOverdueBatch settles the open rows of one batch past its deadline: as unconfirmed if a debit
// call may have been made, else as timedOut, or as cancelled after a cancellation. The batch's
// tasks go on to ask the rail. ErrNotFound: no batch is overdue, or other workers are closing all
// of them.
func (s *Store) CloseOverdueBatch(ctx context.Context) (BatchID, error) {
	id, err := s.closeOverdue(ctx, lockOverdueSQL, nil)
	return id, wrap("close overdue batch", err)
}

// closeIfOverdue closes a batch as CloseOverdueBatch does, if the batch is past its deadline.
// Readers call it, so that they show no batch as open past its deadline, even before a sweep.
func (s *Store) closeIfOverdue(ctx context.Context, site SiteID, batch BatchID) error {
	_, err := s.closeOverdue(ctx, lockOverdueBatchSQL, postgres.Args{"site": site, "batch": batch})
	if errors.Is(err, ErrNotFound) {
		return nil // settled in between
	}
	return err
}

// closeOverdue closes the batch that the statement lock finds and locks. ErrNotFound: it finds
// none.
func (s *Store) closeOverdue(ctx context.Context, lock postgres.Statement, args postgres.Args) (BatchID, error) {
	var id BatchID
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var site SiteID
		if err := tx.Get(ctx, lock, args, &site, &id); err != nil {
			return notFound(err, "overdue batch")
		}
		_, err := tx.Run(ctx, closeBatchSQL, endBatchArgs(site, id))
		return err
	})
	return id, err
}
