package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

const (
	// flushAfter is how long a known result waits for others to be written with it.
	flushAfter = 25 * time.Millisecond
	// holdEvery is how often a running chunk shows that it lives; a third of the lease, so that one missed beat costs
	// nothing.
	holdEvery = models.RowLease / 3
	// freshFor is how long after it was read a link's state may still begin a debit.
	freshFor = 50 * time.Millisecond
	// callGrace is how long rail calls under way may go on after the task's time is over, or a shutdown began: an answer
	// that is waited for spares a look-up.
	callGrace = 10 * time.Second
	// recordWithin bounds what is written after the task's own time is over: results must not be lost to a shutdown.
	recordWithin = 10 * time.Second
)

// DebitRows debits one chunk of a batch: it claims the chunk's due rows, asks the rail for each, and writes what it has
// learnt. Nothing is held in Postgres while the rail works, and a crash at any point leaves rows whose lease runs out
// and which the next run begins with a look-up.
type DebitRows struct {
	Store *models.Store
	Rail  rail.Rail
	// Permits bounds the rail calls of this process.
	Permits *Permits
	// Now is the process's clock; it measures spans, and decides nothing that Postgres decides.
	Now     func() time.Time
	Metrics *Metrics
	Log     *slog.Logger
}

// Run handles one task.
func (d *DebitRows) Run(ctx context.Context, task models.TaskID) error {
	// What is written outlives the task's own time: a claim or a result that is not known to be written costs a lease,
	// or a look-up. Every statement has a time-out of its own all the same.
	if ctx.Err() != nil { // a shutdown before anything began: somebody else's, at once
		return d.park(ctx, task)
	}
	chunk, err := d.claim(ctx, task)
	if errors.Is(err, models.ErrNotFound) {
		return d.Store.FinishTask(ctx, task)
	}
	if err != nil {
		return fmt.Errorf("jobs: debit rows: %w", err)
	}
	ctx = models.WithTraceID(ctx, chunk.TraceID)
	run := newChunkRun(d, chunk)
	err = run.settleAll(ctx)
	if run.closed < chunk.Open || chunk.Open == 0 { // the task of a chunk that others have closed ends, too
		err = errors.Join(err, d.park(ctx, task))
	}
	if err != nil {
		return fmt.Errorf("jobs: debit rows of %s: %w", chunk.BatchID, err)
	}
	return nil
}

func (d *DebitRows) claim(ctx context.Context, task models.TaskID) (models.Chunk, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	return d.Store.ClaimChunk(ctx, task, models.NewLeaseToken())
}

func (d *DebitRows) park(ctx context.Context, task models.TaskID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	return d.Store.ParkChunk(ctx, task)
}

// chunkRun is one run of a chunk. One goroutine, settleAll's, owns all of it; waves of rail calls report to it.
type chunkRun struct {
	job     *DebitRows
	chunk   models.Chunk
	readAt  time.Time // when the rows' accounts were read
	rows    map[int]*rowRun
	answers chan answer
	waves   sync.WaitGroup

	outstanding int // rows whose answer has yet to come
	known       []models.RowResult
	closed      int // open rows that this run has closed
}

// answer is what one row's call brought, or why there was none.
type answer struct {
	index   int
	call    railCall
	result  rail.Result
	unsent  bool                 // the call was not made
	lost    bool                 // nor may it be: the row is no longer this worker's
	account *models.DebitAccount // nor may it be: the link is not linked any more
}

func newChunkRun(d *DebitRows, c models.Chunk) *chunkRun {
	run := &chunkRun{
		job: d, chunk: c, readAt: d.Now(), rows: make(map[int]*rowRun, len(c.Rows)),
		answers: make(chan answer, len(c.Rows)), // a row has one call under way: reports never block
	}
	for _, row := range c.Rows {
		run.rows[row.Index] = &rowRun{row: row, phase: c.Phase, cancelled: c.Cancelled}
	}
	return run
}

// settleAll takes every claimed row as far as it goes now.
func (run *chunkRun) settleAll(ctx context.Context) error {
	callCtx, stopCalls := withGrace(ctx, callGrace)
	defer run.waves.Wait()
	defer stopCalls()

	todo := map[railCall][]int{}
	for _, row := range run.chunk.Rows {
		call, result := run.rows[row.Index].first()
		run.follow(todo, call, row.Index, result)
	}
	run.start(ctx, callCtx, todo)

	beat := time.NewTicker(holdEvery)
	defer beat.Stop()
	var flush <-chan time.Time
	for run.outstanding > 0 {
		select {
		case a := <-run.answers:
			run.take(ctx, callCtx, a)
		case <-flush:
			flush = nil
			if err := run.record(ctx); err != nil {
				return err
			}
		case <-beat.C:
			run.hold(ctx)
		}
		if flush == nil && len(run.known) > 0 {
			flush = time.After(flushAfter)
		}
	}
	return run.record(ctx)
}

// follow notes what comes after a decision: another call, or a result to write.
func (run *chunkRun) follow(todo map[railCall][]int, call railCall, index int, result models.RowResult) {
	if call != callNone {
		todo[call] = append(todo[call], index)
		return
	}
	if result.Outcome == "" {
		result.RetryAfter = retryAfter(run.rows[index].row.Deferrals, rand.Float64()) //nolint:gosec // jitter, not a secret
	}
	run.known = append(run.known, result)
}

// take follows one answer, and whatever else has arrived by now.
func (run *chunkRun) take(ctx, callCtx context.Context, a answer) {
	todo := map[railCall][]int{}
	for {
		run.outstanding--
		run.takeOne(todo, a)
		select {
		case a = <-run.answers:
			continue
		default:
		}
		break
	}
	run.start(ctx, callCtx, todo)
}

func (run *chunkRun) takeOne(todo map[railCall][]int, a answer) {
	row := run.rows[a.index]
	switch {
	case a.lost:
	case a.unsent: // due again at once: whoever comes next can send it
		run.known = append(run.known, row.released())
	case a.account != nil:
		row.row.Account = *a.account
		call, result := row.debitOrClose()
		run.follow(todo, call, a.index, result)
	default:
		call, result := row.next(a.call, a.result)
		run.follow(todo, call, a.index, result)
	}
}

// start sends calls on their way, in waves as wide as there are permits. No call begins once ctx has ended; those under way
// then have until callCtx ends.
func (run *chunkRun) start(ctx, callCtx context.Context, todo map[railCall][]int) {
	for call, rows := range todo {
		run.outstanding += len(rows)
		run.waves.Go(func() { run.launch(ctx, callCtx, call, rows) })
	}
}

func (run *chunkRun) launch(ctx, callCtx context.Context, call railCall, rows []int) {
	for len(rows) > 0 {
		n := run.job.Permits.Take(ctx, run.chunk.OrganisationID, len(rows))
		if n == 0 {
			run.reportUnsent(rows)
			return
		}
		wave := rows[:n]
		rows = rows[n:]
		run.waves.Go(func() { run.wave(callCtx, call, wave) })
	}
}

// withGrace is a context that ends the grace after ctx did.
func withGrace(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(later, func() { timer.Stop() })
	})
	return later, func() { stop(); cancel() }
}

func (run *chunkRun) reportUnsent(rows []int) {
	for _, index := range rows {
		run.answers <- answer{index: index, unsent: true}
	}
}

// wave makes one call for rows that hold a permit each.
func (run *chunkRun) wave(ctx context.Context, call railCall, rows []int) {
	if call == callDebit {
		rows = run.confirmed(ctx, rows)
	}
	if len(rows) == 0 {
		return
	}
	began := run.job.Now()
	report := func(i int, r rail.Result) {
		run.job.Permits.Give(run.chunk.OrganisationID, 1)
		run.job.Metrics.railCall(call, r.Status, run.job.Now().Sub(began))
		if r.Reason == rail.KeyReused {
			run.job.Log.ErrorContext(ctx, "the rail knows the row's key with other particulars",
				"batch", run.chunk.BatchID, "row", rows[i])
		}
		run.answers <- answer{index: rows[i], call: call, result: r}
	}
	switch call {
	case callDebit:
		run.job.Rail.Debit(ctx, run.debits(rows), report)
	case callLookup:
		run.job.Rail.Lookup(ctx, run.keys(rows), report)
	case callCancel:
		run.job.Rail.Cancel(ctx, run.keys(rows), report)
	case callNone: // is not a call, and never a wave
	}
}

// confirmed makes sure, right before the rail is called, that the rows are still this worker's and their links linked. It
// reports the others and gives their permits back.
func (run *chunkRun) confirmed(ctx context.Context, rows []int) []int {
	if run.job.Now().Sub(run.readAt) < freshFor {
		return rows
	}
	accounts, err := run.job.Store.HoldRows(ctx, run.chunk, rows)
	if err != nil {
		run.job.Log.WarnContext(ctx, "cannot confirm the lease", "batch", run.chunk.BatchID, "error", err)
		run.job.Permits.Give(run.chunk.OrganisationID, len(rows))
		run.reportUnsent(rows)
		return nil
	}
	kept := make([]int, 0, len(rows))
	for _, index := range rows {
		account, held := accounts[index]
		switch {
		case !held:
			run.answers <- answer{index: index, lost: true}
		case !account.Linked:
			run.answers <- answer{index: index, account: &account}
		default:
			kept = append(kept, index)
		}
	}
	run.job.Permits.Give(run.chunk.OrganisationID, len(rows)-len(kept))
	return kept
}

func (run *chunkRun) debits(rows []int) []rail.Debit {
	debits := make([]rail.Debit, len(rows))
	for i, index := range rows {
		row := run.rows[index].row
		debits[i] = rail.Debit{
			Key: models.RailKey(run.chunk.BatchID, index), AgreementID: row.Account.AgreementID,
			CustomerID: row.Account.CustomerID, Amount: row.Amount, Currency: run.chunk.Currency,
			OrganisationID: run.chunk.OrganisationID, SiteID: run.chunk.SiteID,
		}
	}
	return debits
}

func (run *chunkRun) keys(rows []int) []string {
	keys := make([]string, len(rows))
	for i, index := range rows {
		keys[i] = models.RailKey(run.chunk.BatchID, index)
	}
	return keys
}

// hold shows that the worker lives. A beat that fails is made up by the next; should the lease run out meanwhile, no debit
// begins without it.
func (run *chunkRun) hold(ctx context.Context) {
	rows := make([]int, 0, len(run.rows))
	for index := range run.rows {
		rows = append(rows, index)
	}
	if _, err := run.job.Store.HoldRows(ctx, run.chunk, rows); err != nil {
		run.job.Log.WarnContext(ctx, "cannot extend the lease", "batch", run.chunk.BatchID, "error", err)
	}
}

// record writes the known results. It outlives the task's own time, since a result that is not written costs a look-up.
func (run *chunkRun) record(ctx context.Context) error {
	if len(run.known) == 0 {
		return nil
	}
	recordCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	settled, err := run.job.Store.FinishRows(recordCtx, run.chunk, run.known, run.chunk.Open-run.closed)
	if err != nil {
		return err
	}
	run.known = run.known[:0]
	for _, row := range settled {
		run.closed++
		run.job.Metrics.settled(row.Outcome)
		if row.Corrected {
			run.job.Log.ErrorContext(ctx, "the rail's truth came after the row was settled",
				"batch", run.chunk.BatchID, "row", row.Index, "correctedOutcome", row.Outcome)
		}
	}
	return nil
}
