package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
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
	// freshFor is how long after it was read a row may still be debited by what was read: a little more than rows that were claimed
	// ahead wait for a permit on a rail of ordinary speed.
	freshFor = 100 * time.Millisecond
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

	doubts doubts
}

// Run handles one task.
func (d *DebitRows) Run(ctx context.Context, task models.Task) error {
	// What is written outlives the task's own time: a claim or a result that is not known to be written costs a lease,
	// or a look-up. Every statement has a time-out of its own all the same.
	if ctx.Err() != nil { // a shutdown before anything began: somebody else's, at once
		return d.park(ctx, task.ID)
	}
	run := newChunkRun(d, task)
	err := run.settleAll(ctx)
	switch {
	case errors.Is(err, models.ErrNotFound):
		return d.Store.FinishTask(ctx, task.ID)
	case err != nil && run.chunk.Task.IsZero(): // nothing was claimed, so that the batch is not known
		return fmt.Errorf("jobs: debit rows of task %s: %w", task.ID, err)
	case run.closed < run.chunk.Open || run.chunk.Open == 0: // the task of a chunk that others have closed ends, too
		err = errors.Join(err, d.park(ctx, task.ID))
	}
	if err != nil {
		return fmt.Errorf("jobs: debit rows of %s: %w", run.chunk.BatchID, err)
	}
	return nil
}

func (d *DebitRows) park(ctx context.Context, task models.TaskID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	return d.Store.ParkChunk(ctx, task)
}

// chunkRun is one run of a chunk. One goroutine, settleAll's, owns all of it; claims and waves of rail calls report to it.
type chunkRun struct {
	job     *DebitRows
	task    models.Task
	lease   models.LeaseToken
	turn    Turn
	chunk   models.Chunk // the first part that was claimed
	rows    map[int]*rowRun
	answers chan answer
	work    sync.WaitGroup

	claiming    bool // there are parts to come
	outstanding int  // rows whose answer has yet to come
	known       []models.RowResult
	closed      int // open rows that this run has closed
}

// answer is what one row's call brought, or why there was none.
type answer struct {
	index  int
	call   railCall
	result rail.Result
	unsent bool                // the call was not made
	lost   bool                // nor may it be: the row is no longer this worker's
	seen   *models.Eligibility // nor may it be, as it is by now
}

func newChunkRun(d *DebitRows, task models.Task) *chunkRun {
	if task.Rows <= 0 {
		task.Rows = models.ChunkRows // as a binary before this one enqueued it
	}
	return &chunkRun{
		job: d, task: task, lease: models.NewLeaseToken(), turn: d.Permits.Turn(task.OrganisationID), rows: make(map[int]*rowRun, task.Rows),
		answers: make(chan answer, task.Rows), // a row has one call under way: reports never block
	}
}

// settleAll takes every row that can be claimed as far as it goes now. ErrNotFound: there is nothing left to do.
func (run *chunkRun) settleAll(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	callCtx, stopCalls := withGrace(ctx, callGrace)
	parts := make(chan *claimed, run.task.Rows) // a part has a row at least: the claims never block
	defer func() {
		stop()
		stopCalls()
		run.work.Wait()
		for part := range parts { // of a run that has failed
			run.job.Permits.GivePlaces(run.task.OrganisationID, len(part.Rows))
		}
	}()

	ahead := parts
	run.claiming = true
	run.work.Go(func() { run.claimAll(ctx, parts) })
	beat := time.NewTicker(holdEvery)
	defer beat.Stop()
	var flush <-chan time.Time
	for run.claiming || run.outstanding > 0 {
		select {
		case part, more := <-ahead:
			if run.claiming = more; !more {
				ahead = nil
				continue
			}
			err = errors.Join(err, part.err)
			run.begin(ctx, callCtx, part)
		case a := <-run.answers:
			run.take(ctx, callCtx, a)
		case <-flush:
			flush = nil
			if recordErr := run.record(ctx); recordErr != nil {
				return errors.Join(err, recordErr)
			}
		case <-beat.C:
			run.hold(ctx)
		}
		if flush == nil && len(run.known) > 0 {
			flush = time.After(flushAfter)
		}
	}
	return errors.Join(err, run.record(ctx))
}

// claimed is a part of the chunk that has been claimed, or why it has not.
type claimed struct {
	models.Chunk
	readAt time.Time // since when its rows' accounts may have changed
	err    error
}

// claimAll claims the chunk part by part, each no sooner than there are places for its rows, until the context ends.
func (run *chunkRun) claimAll(ctx context.Context, parts chan<- *claimed) {
	defer close(parts)
	for next := 0; next < run.task.Rows; {
		n := run.job.Permits.TakePlaces(ctx, run.turn, run.task.Rows-next)
		if n == 0 {
			return
		}
		part := run.claim(ctx, models.Part{First: next, Rows: n})
		run.job.Permits.GivePlaces(run.task.OrganisationID, n-len(part.Rows))
		parts <- part
		if part.err != nil {
			return
		}
		next += n
	}
}

func (run *chunkRun) claim(ctx context.Context, part models.Part) *claimed {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	readAt := run.job.Now()
	chunk, err := run.job.Store.ClaimChunk(ctx, run.task.ID, run.lease, part)
	if err != nil {
		return &claimed{err: err}
	}
	return &claimed{Chunk: chunk, readAt: readAt}
}

// begin sends the rows of a part on their way.
func (run *chunkRun) begin(ctx, callCtx context.Context, part *claimed) {
	todo := run.add(part)
	calls := 0
	for _, rows := range todo {
		calls += len(rows)
	}
	run.job.Permits.GivePlaces(run.task.OrganisationID, len(part.Rows)-calls)
	run.start(ctx, callCtx, todo, true)
}

// add decides how the rows of a part begin.
func (run *chunkRun) add(part *claimed) map[railCall][]int {
	if run.chunk.Task.IsZero() {
		run.chunk = part.Chunk
	}
	todo := map[railCall][]int{}
	for _, row := range part.Rows {
		run.rows[row.Index] = &rowRun{
			row: row, payee: payee{part.OrganisationID, part.SiteID, part.Currency}, phase: part.Phase, cancelled: part.Cancelled,
			certain: part.Certain, readAt: part.readAt,
		}
		call, result := run.rows[row.Index].first()
		run.follow(todo, call, row.Index, result)
	}
	return todo
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
	run.start(ctx, callCtx, todo, false)
}

func (run *chunkRun) takeOne(todo map[railCall][]int, a answer) {
	row := run.rows[a.index]
	switch {
	case a.lost:
	case a.unsent: // due again at once: whoever comes next can send it
		run.known = append(run.known, row.released())
	case a.seen != nil:
		row.see(*a.seen)
		call, result := row.debitOrClose()
		run.follow(todo, call, a.index, result)
	default:
		call, result := row.next(a.call, a.result)
		run.follow(todo, call, a.index, result)
	}
}

// start sends calls on their way, in waves as wide as there are permits and turns on the rail; the rows may have places, which
// they give up as their calls begin. No call begins once ctx has ended; those under way then have until callCtx ends.
func (run *chunkRun) start(ctx, callCtx context.Context, todo map[railCall][]int, placed bool) {
	for call, indexes := range todo {
		run.outstanding += len(indexes)
		rows := run.pick(indexes)
		run.work.Go(func() { run.launch(ctx, callCtx, call, rows, placed) })
	}
}

// pick are the rows with these indexes. Waves do not look them up themselves: parts are added meanwhile.
func (run *chunkRun) pick(indexes []int) []*rowRun {
	rows := make([]*rowRun, len(indexes))
	for i, index := range indexes {
		rows[i] = run.rows[index]
	}
	return rows
}

func (run *chunkRun) launch(ctx, callCtx context.Context, call railCall, rows []*rowRun, placed bool) {
	leavePlaces := func(n int) {
		if placed {
			run.job.Permits.GivePlaces(run.task.OrganisationID, n)
		}
	}
	for len(rows) > 0 {
		n := run.admit(ctx, call, len(rows))
		if n == 0 {
			leavePlaces(len(rows))
			run.reportUnsent(rows)
			return
		}
		leavePlaces(n)
		wave := rows[:n]
		rows = rows[n:]
		run.work.Go(func() { run.wave(callCtx, call, wave) })
	}
}

// admit waits until calls for some of n rows may begin, which then have a permit and a turn on the rail each. It returns for how many;
// 0 if the context ended first. Permits that no turn came for go to others meanwhile.
func (run *chunkRun) admit(ctx context.Context, call railCall, n int) int {
	permits := run.job.Permits.Take(ctx, run.turn, n)
	if permits == 0 {
		return 0
	}
	turns := run.job.Rail.Admit(ctx, call.admittedFor(run.task.OrganisationID), permits)
	run.job.Permits.Give(run.task.OrganisationID, permits-turns)
	return turns
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

func (run *chunkRun) reportUnsent(rows []*rowRun) {
	for _, r := range rows {
		run.answers <- answer{index: r.row.Index, unsent: true}
	}
}

// wave makes one call for rows that hold a permit and a turn each.
func (run *chunkRun) wave(ctx context.Context, call railCall, rows []*rowRun) {
	if call == callDebit {
		rows = run.confirmed(ctx, rows)
	}
	if len(rows) == 0 {
		return
	}
	began := run.job.Now()
	report := func(i int, r rail.Result) {
		run.job.Permits.Give(run.task.OrganisationID, 1)
		now := run.job.Now()
		run.job.Metrics.railCall(call, r.Status, now.Sub(began))
		run.job.doubts.note(ctx, run.job.Log, now, rows[i].row.RailKey, call, r)
		run.answers <- answer{index: rows[i].row.Index, call: call, result: r}
	}
	switch call {
	case callDebit:
		run.job.Rail.Debit(ctx, debitsOf(rows), report)
	case callLookup:
		run.job.Rail.Lookup(ctx, keysOf(rows), report)
	case callCancel:
		run.job.Rail.Cancel(ctx, keysOf(rows), report)
	case callNone: // is not a call, and never a wave
	}
}

// confirmed makes sure, right before the rail is called, that the rows are still this worker's and may be debited. It reports
// the others and gives their permits back.
func (run *chunkRun) confirmed(ctx context.Context, rows []*rowRun) []*rowRun {
	if run.fresh(rows) {
		return rows
	}
	indexes := indexesOf(rows)
	held, err := run.job.Store.CheckRows(ctx, run.chunk, indexes)
	if err == nil && len(held) < len(rows) {
		held, err = run.job.Store.HoldRows(ctx, run.chunk, indexes)
	}
	if err != nil {
		run.job.Log.WarnContext(ctx, "cannot confirm the lease", "batch", run.chunk.BatchID, "error", err)
		run.job.Permits.Give(run.task.OrganisationID, len(rows))
		run.reportUnsent(rows)
		return nil
	}
	kept := make([]*rowRun, 0, len(rows))
	for _, r := range rows {
		row, is := held[r.row.Index]
		switch {
		case !is:
			run.answers <- answer{index: r.row.Index, lost: true}
		case !row.MayDebit():
			run.answers <- answer{index: r.row.Index, seen: &row}
		default:
			kept = append(kept, r)
		}
	}
	run.job.Permits.Give(run.task.OrganisationID, len(rows)-len(kept))
	return kept
}

// fresh reports whether all the rows were read so short a time ago that it may go by what was read.
func (run *chunkRun) fresh(rows []*rowRun) bool {
	now := run.job.Now()
	return !slices.ContainsFunc(rows, func(r *rowRun) bool { return now.Sub(r.readAt) >= freshFor })
}

func indexesOf(rows []*rowRun) []int {
	indexes := make([]int, len(rows))
	for i, r := range rows {
		indexes[i] = r.row.Index
	}
	return indexes
}

func debitsOf(rows []*rowRun) []rail.Debit {
	debits := make([]rail.Debit, len(rows))
	for i, r := range rows {
		debits[i] = r.debit()
	}
	return debits
}

func keysOf(rows []*rowRun) []string {
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.row.RailKey
	}
	return keys
}

// hold shows that the worker lives. A beat that fails is made up by the next; should the lease run out meanwhile, no debit
// begins without it.
func (run *chunkRun) hold(ctx context.Context) {
	var err error
	if run.claiming {
		err = run.job.Store.HoldTask(ctx, run.task.ID)
	}
	if len(run.rows) > 0 {
		_, rowsErr := run.job.Store.HoldRows(ctx, run.chunk, slices.Collect(maps.Keys(run.rows)))
		err = errors.Join(err, rowsErr)
	}
	if err != nil {
		run.job.Log.WarnContext(ctx, "cannot extend the lease", "batch", run.chunk.BatchID, "error", err)
	}
}

// record writes the known results. It outlives the task's own time, since a result that is not written costs a look-up.
func (run *chunkRun) record(ctx context.Context) error {
	if len(run.known) == 0 {
		return nil
	}
	for _, result := range run.known {
		if result.Alert != "" {
			run.job.Log.ErrorContext(ctx, "the rail cannot tell what became of a row", "alert", result.Alert, "key", result.RailKey)
		}
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
