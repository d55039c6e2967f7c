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
	"partnerbilling/models/logs"
	"partnerbilling/models/tracing"
)

const (
	// flushDelay is how long a result waits for others to be recorded with it.
	flushDelay = 25 * time.Millisecond
	// heartbeatInterval is the time between two lease extensions of a run. It is a third of the
	// lease, so that one missed heartbeat does no harm.
	heartbeatInterval = models.RowLease / 3
	// recheckAfter is the time after which the lease and the eligibility of a row must be read
	// again before a debit. On a rail of ordinary speed, claimed rows wait a little less for their
	// call permits.
	recheckAfter = 100 * time.Millisecond
	// callGrace is how long rail calls in flight may go on after the run's context has ended. Each
	// answer that arrives within it saves a look-up.
	callGrace = 10 * time.Second
	// recordTimeout bounds the statements that run after the run's context has ended, so that a
	// shutdown loses no result.
	recordTimeout = 10 * time.Second
)

// DebitRows is the job that debits one chunk of a batch. It claims the due rows of the chunk, makes
// the rail calls that they need, and records the results. It holds no database transaction during a
// rail call. After a crash the leases of the rows expire, and the next run looks up each row whose
// debit may have begun.
type DebitRows struct {
	Store *models.Store
	Rail  rail.Rail
	// Permits bounds the rail calls of this process, for payments and batches together.
	Permits *Permits
	// Now is the clock of the process. It measures durations only: Postgres decides what is due.
	Now     func() time.Time
	Metrics *Metrics
	Tracer  *tracing.Tracer
	Log     *slog.Logger

	railLog railLog
}

// Run implements queue.Job.
func (d *DebitRows) Run(ctx context.Context, task models.Task) error {
	// Claims and records go on after ctx has ended: a claim with an unknown outcome delays its rows
	// by a lease, and a lost result costs a look-up. Each statement has a time-out of its own.
	if ctx.Err() != nil { // a shutdown: another worker can take the task at once
		return d.park(ctx, task.ID)
	}
	run := newChunkRun(d, task)
	err := run.process(ctx)
	switch {
	case errors.Is(err, models.ErrNotFound):
		return d.Store.FinishTask(ctx, task.ID)
	case err != nil && run.chunk.Task.IsZero(): // no claim succeeded, so the batch is not known
		return fmt.Errorf("jobs: debit rows of task %s: %w", task.ID, err)
	case run.closed < run.chunk.Open || run.chunk.Open == 0: // park also ends the task of a closed chunk
		err = errors.Join(err, d.park(ctx, task.ID))
	}
	if err != nil {
		return fmt.Errorf("jobs: debit rows of %s: %w", run.chunk.BatchID, err)
	}
	return nil
}

// park makes the task due with its next open row, or ends it if no row is open.
func (d *DebitRows) park(ctx context.Context, task models.TaskID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return d.Store.ParkChunk(ctx, task)
}

// chunkRun is one run of a chunk. The goroutine of process owns it. Claims and rail calls run in
// other goroutines, and report to the owner over channels.
type chunkRun struct {
	job     *DebitRows
	task    models.Task
	lease   models.LeaseToken
	ticket  Ticket
	chunk   models.Chunk // of the first claim
	rows    map[int]*rowRun
	answers chan answer
	work    sync.WaitGroup

	claiming    bool // claimAll is running
	outstanding int  // number of rows whose answer has not arrived
	results     []models.RowResult
	closed      int // number of rows that this run has settled or corrected
}

// answer reports the result of a row's call, or why the call was not made.
type answer struct {
	index      int
	call       railCall
	result     rail.Result
	unsent     bool                // the call was not made, and is due again
	lost       bool                // the call was not made: another worker has the row
	ineligible *models.Eligibility // the call was not made: the row may not be debited any more
}

func newChunkRun(d *DebitRows, task models.Task) *chunkRun {
	if task.Rows <= 0 {
		task.Rows = models.ChunkRows // the task in Redis does not tell its number of rows
	}
	return &chunkRun{
		job: d, task: task, lease: models.NewLeaseToken(), ticket: d.Permits.Ticket(task.OrganisationID),
		rows:    make(map[int]*rowRun, task.Rows),
		answers: make(chan answer, task.Rows), // never blocks: a row has one call at a time
	}
}

// withIDs returns a context whose log records carry the ids of the batch, once it is known.
func (run *chunkRun) withIDs(ctx context.Context) context.Context {
	if run.chunk.Task.IsZero() {
		return ctx
	}
	return logs.With(ctx, slog.Any(logs.SiteID, run.chunk.SiteID), slog.Any(logs.BatchID, run.chunk.BatchID))
}

// process claims the due rows of the chunk, and makes their calls until each row has a result: an
// outcome, or the time of its next attempt. It records the results. It returns models.ErrNotFound
// if the task has ended. ctx ends claims and the admission of calls; see callGrace.
func (run *chunkRun) process(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	callCtx, stopCalls := withGrace(ctx, callGrace)
	claims := make(chan *claim, run.task.Rows) // never blocks: a claim has at least one row
	defer func() {
		stop()
		stopCalls()
		run.work.Wait()
		for c := range claims { // claims that a failed run has not begun
			run.job.Permits.ReleaseClaims(run.task.OrganisationID, len(c.Rows))
		}
	}()

	nextClaim := claims
	run.claiming = true
	run.work.Go(func() { run.claimAll(ctx, claims) })
	heartbeat := time.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	var flush <-chan time.Time
	for run.claiming || run.outstanding > 0 {
		select {
		case c, more := <-nextClaim:
			if run.claiming = more; !more {
				nextClaim = nil
				continue
			}
			err = errors.Join(err, c.err)
			run.begin(ctx, callCtx, c)
		case a := <-run.answers:
			run.handleAnswers(ctx, callCtx, a)
		case <-flush:
			flush = nil
			if recordErr := run.record(ctx); recordErr != nil {
				return errors.Join(err, recordErr)
			}
		case <-heartbeat.C:
			run.extendLease(callCtx)
		}
		if flush == nil && len(run.results) > 0 {
			flush = time.After(flushDelay)
		}
	}
	return errors.Join(err, run.record(ctx))
}

// claim is a claimed part of the chunk, or the error of the claim.
type claim struct {
	models.Chunk
	readAt time.Time // right before the rows and their accounts were read
	err    error
}

// claimAll claims the chunk part by part, until the whole chunk is claimed, a claim fails, or the
// context ends. Each claim waits for claim permits for its rows. claimAll closes claims at its end.
func (run *chunkRun) claimAll(ctx context.Context, claims chan<- *claim) {
	defer close(claims)
	for next := 0; next < run.task.Rows; {
		n := run.job.Permits.AcquireClaims(ctx, run.ticket, run.task.Rows-next)
		if n == 0 {
			return
		}
		c := run.claim(ctx, models.Part{First: next, Rows: n})
		run.job.Permits.ReleaseClaims(run.task.OrganisationID, n-len(c.Rows))
		claims <- c
		if c.err != nil {
			return
		}
		next += n
	}
}

// claim claims the due rows in one part of the chunk, even if ctx has ended.
func (run *chunkRun) claim(ctx context.Context, part models.Part) *claim {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	readAt := run.job.Now()
	chunk, err := run.job.Store.ClaimChunk(ctx, run.task.ID, run.lease, part)
	if err != nil {
		return &claim{err: errors.Join(err, run.abandonClaim(ctx, part))}
	}
	return &claim{Chunk: chunk, readAt: readAt}
}

// abandonClaim ends the leases of a claim whose statement failed: Postgres may have made the claim
// all the same. No rail call was made for its rows, so another run may claim them at once.
func (run *chunkRun) abandonClaim(ctx context.Context, part models.Part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return run.job.Store.AbandonClaim(ctx, run.task.ID, run.lease, part)
}

// begin starts the first calls of the claimed rows. Rows that need no call release their claim
// permits.
func (run *chunkRun) begin(ctx, callCtx context.Context, c *claim) {
	todo := run.addRows(c)
	calls := 0
	for _, rows := range todo {
		calls += len(rows)
	}
	run.job.Permits.ReleaseClaims(run.task.OrganisationID, len(c.Rows)-calls)
	run.startCalls(ctx, callCtx, todo, true)
}

// addRows adds the claimed rows to the run. It returns their indexes by the call that each row
// needs first.
func (run *chunkRun) addRows(c *claim) map[railCall][]int {
	if run.chunk.Task.IsZero() {
		run.chunk = c.Chunk
	}
	todo := map[railCall][]int{}
	for _, row := range c.Rows {
		run.rows[row.Index] = &rowRun{
			row: row, payee: payee{c.OrganisationID, c.SiteID, c.Currency}, phase: c.Phase, cancelled: c.Cancelled,
			paused: c.Paused, certain: c.Certain, readAt: c.readAt,
		}
		call, result := run.rows[row.Index].first()
		run.decide(todo, call, row.Index, result)
	}
	return todo
}

// decide adds the row to todo under its next call. If the row needs no call, decide adds its result
// to those to be recorded.
func (run *chunkRun) decide(todo map[railCall][]int, call railCall, index int, result models.RowResult) {
	if call != callNone {
		todo[call] = append(todo[call], index)
		return
	}
	if result.Outcome == "" {
		deferrals := run.rows[index].row.Deferrals
		result.RetryAfter = retryAfter(deferrals, rand.Float64()) //nolint:gosec // jitter, not a secret
	}
	run.results = append(run.results, result)
}

// handleAnswers handles an answer, and all others that have arrived by now. It starts the calls
// that follow.
func (run *chunkRun) handleAnswers(ctx, callCtx context.Context, a answer) {
	todo := map[railCall][]int{}
	for {
		run.outstanding--
		run.handleAnswer(todo, a)
		select {
		case a = <-run.answers:
			continue
		default:
		}
		break
	}
	run.startCalls(ctx, callCtx, todo, false)
}

// handleAnswer decides what follows an answer.
func (run *chunkRun) handleAnswer(todo map[railCall][]int, a answer) {
	row := run.rows[a.index]
	switch {
	case a.lost:
	case a.unsent: // due at once, for the next worker
		run.results = append(run.results, row.released())
	case a.ineligible != nil:
		row.update(*a.ineligible)
		call, result := row.debitOrClose()
		run.decide(todo, call, a.index, result)
	default:
		call, result := row.next(a.call, a.result)
		run.decide(todo, call, a.index, result)
	}
}

// extendLease extends the leases of the task and its rows. The next heartbeat makes up for a
// failure. No debit begins under an expired lease.
func (run *chunkRun) extendLease(ctx context.Context) {
	var err error
	if run.claiming {
		err = run.job.Store.ExtendTask(ctx, run.task.ID)
	}
	if len(run.rows) > 0 {
		_, rowsErr := run.job.Store.ExtendRows(ctx, run.chunk, slices.Collect(maps.Keys(run.rows)))
		err = errors.Join(err, rowsErr)
	}
	if err != nil && ctx.Err() == nil {
		run.job.Log.WarnContext(run.withIDs(ctx), "cannot extend the lease", logs.Outage(err), "error", err)
	}
}

// record writes the results to the database. It does so even if ctx has ended, since a lost result
// costs a look-up.
func (run *chunkRun) record(ctx context.Context) error {
	if len(run.results) == 0 {
		return nil
	}
	for _, result := range run.results {
		if result.Alert != "" {
			run.job.Log.ErrorContext(run.withIDs(ctx), "a row needs an operator",
				"alert", result.Alert, "key", result.RailKey)
		}
	}
	recordCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	settled, err := run.finishRows(recordCtx)
	if errors.Is(err, models.ErrUnavailable) {
		// Only the connection may have failed. If Postgres has recorded the results, it ignores
		// them the second time, and ParkChunk ends a task without open rows.
		settled, err = run.finishRows(recordCtx)
	}
	if err != nil {
		return err
	}
	run.results = run.results[:0]
	for _, row := range settled {
		run.closed++
		run.job.Metrics.rowSettled(row.Outcome)
		if row.Corrected {
			run.job.Log.ErrorContext(run.withIDs(ctx), "the rail corrected the outcome of a settled row",
				"row", row.Index, "correctedOutcome", row.Outcome)
		}
	}
	return nil
}

// finishRows writes the results once. The task ends with the last open row.
func (run *chunkRun) finishRows(ctx context.Context) ([]models.SettledRow, error) {
	return run.job.Store.FinishRows(ctx, run.chunk, run.results, run.chunk.Open-run.closed)
}
