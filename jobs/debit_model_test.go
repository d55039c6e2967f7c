package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// TestDebitModel divides the worker's code at its crash points (claim, recheck, rail call, answer,
// record, park). Any number of workers pass them in any order, on real Postgres. Meanwhile tasks
// come twice, workers die or sleep, requests and answers are lost or late, leases expire, the batch
// is cancelled, the customer is revoked and time passes.
//
// The model is the rail's record of each row: the debit or cancellation that arrived under its key
// first, or nothing. The rail debits a key at most once. The test checks that the books agree with
// the rail, at every moment for final rows, and at the end for all:
//
//   - a row has succeeded only if the rail has debited it;
//   - a row with another outcome was not debited, and no call in flight will debit it;
//   - an unconfirmed row is the exception: the rail's later answer corrects it;
//   - a final outcome never changes, and every row becomes final once the rail answers and a worker
//     lives.
func TestDebitModel(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	site := modelstest.Site(t, store)
	createSavedTables(t, store)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		reference := fmt.Sprint(runs)
		modelstest.Customer(t, store, site.ID, reference, models.BehaviourPays)
		done := modelstest.Submit(t, store, modelstest.Batch(site, reference, reference, reference, "unknown"))
		m := &debitModel{
			t: t, store: store, site: site, reference: reference, batch: done.Batch.ID, task: done.Tasks[0],
			rail: railtest.NewScripted(), before: map[int]models.BatchRow{},
		}
		m.job = &DebitRows{Store: store, Rail: m.rail, Permits: NewPermits(64), Now: m.now,
			Log: slog.New(slog.DiscardHandler)}
		rt.Repeat(map[string]func(*rapid.T){
			"deliver":         m.deliver,
			"send":            m.send,
			"arrive":          m.arrive,
			"answer":          m.answer,
			"give up waiting": m.giveUp,
			"rail is down":    m.unreachable,
			"record":          m.record,
			"finish":          m.finish,
			"die":             m.die,
			"expire leases":   m.expireLeases,
			"cancel":          m.cancel,
			"revoke customer": m.revoke,
			"advance clock":   m.advanceClock,
			"sweep":           m.sweep,
			"back up":         m.backUp,
			"loss":            m.lose,
			"loss of all":     m.loseAll,
			"":                m.check,
		})
		m.settleAll(rt)
	})
	modelstest.Audit(t, store)
}

// debitModel is one batch, with its workers and its calls in flight.
type debitModel struct {
	t         *testing.T
	store     *models.Store
	site      models.Site
	reference string
	batch     models.BatchID
	task      models.TaskID
	rail      *railtest.Scripted
	job       *DebitRows
	before    map[int]models.BatchRow
	age       time.Duration // of the batch, without settleAll

	workers []*modelWorker
	network []*modelCall
	stale   bool // the clock has passed recheckAfter for the current worker

	backedUp bool // there is a backup that lose can restore
}

// modelWorker is one run of the task, stopped between two steps.
type modelWorker struct {
	*chunkRun
	todo  map[int]railCall // rows that need a call
	stale bool             // the rows may have changed since it read them
}

// modelCall is a call or an answer in flight.
type modelCall struct {
	worker  *modelWorker // nil if no worker waits for the answer
	row     int
	call    railCall
	debit   rail.Debit
	arrived bool
	result  rail.Result
}

// now is the clock of all workers. It stands still, but jumps ahead for a worker whose rows are
// stale.
func (m *debitModel) now() time.Time {
	if m.stale {
		return time.Unix(0, 0).Add(time.Hour)
	}
	return time.Unix(0, 0)
}

// deliver starts a run of the task: the first one, a concurrent one, or one after the lease.
func (m *debitModel) deliver(t *rapid.T) {
	m.stale = false
	chunk, err := m.store.ClaimChunk(t.Context(), m.task, models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
	if errors.Is(err, models.ErrNotFound) {
		t.Skip("the task is done")
	}
	if err != nil {
		t.Fatal(err)
	}
	m.makeStale()
	w := &modelWorker{chunkRun: newChunkRun(m.job, models.Task{ID: m.task}), todo: map[int]railCall{}}
	w.addTodo(w.addRows(&claim{Chunk: chunk, readAt: m.now()}))
	m.workers = append(m.workers, w)
}

// addTodo adds the calls that rows need next.
func (w *modelWorker) addTodo(todo map[railCall][]int) {
	for call, rows := range todo {
		for _, row := range rows {
			w.todo[row] = call
		}
	}
}

// makeStale marks the rows of all workers as stale, because something has changed.
func (m *debitModel) makeStale() {
	for _, w := range m.workers {
		w.stale = true
	}
}

// drawWorker draws one of the workers that meet the condition. action names the step for the log.
func (m *debitModel) drawWorker(t *rapid.T, action string, may func(*modelWorker) bool) *modelWorker {
	var able []*modelWorker
	for _, w := range m.workers {
		if may(w) {
			able = append(able, w)
		}
	}
	if len(able) == 0 {
		t.Skip("no worker can " + action)
	}
	return able[rapid.IntRange(0, len(able)-1).Draw(t, "worker")]
}

// send rechecks a row that needs a debit, and sends its call.
func (m *debitModel) send(t *rapid.T) {
	w := m.drawWorker(t, "send", func(w *modelWorker) bool { return len(w.todo) > 0 })
	row := rapid.SampledFrom(slices.Sorted(maps.Keys(w.todo))).Draw(t, "row")
	call := w.todo[row]
	delete(w.todo, row)
	c := &modelCall{worker: w, row: row, call: call}
	if call == callDebit {
		m.stale = w.stale
		w.job.Permits.AcquireCalls(t.Context(), w.job.Permits.Ticket(w.task.OrganisationID), 1)
		if len(w.recheck(t.Context(), w.rowsAt([]int{row}))) == 0 {
			m.handle(w, <-w.answers)
			return
		}
		c.debit = w.rows[row].debit()
	}
	m.network = append(m.network, c)
}

// handle lets a worker handle an answer.
func (m *debitModel) handle(w *modelWorker, a answer) {
	todo := map[railCall][]int{}
	w.handleAnswer(todo, a)
	w.addTodo(todo)
}

// drawCall draws one of the calls that meet the condition. action names the step for the log.
func (m *debitModel) drawCall(t *rapid.T, action string, may func(*modelCall) bool) *modelCall {
	var able []*modelCall
	for _, c := range m.network {
		if may(c) {
			able = append(able, c)
		}
	}
	if len(able) == 0 {
		t.Skip("no call can " + action)
	}
	return able[rapid.IntRange(0, len(able)-1).Draw(t, "call")]
}

// arrive lets a call reach the rail, with a drawn answer for a new debit.
func (m *debitModel) arrive(t *rapid.T) {
	c := m.drawCall(t, "arrive", func(c *modelCall) bool { return !c.arrived })
	m.rail.SetDefault(rapid.SampledFrom([]railtest.Step{
		railtest.Succeed, railtest.Succeed, railtest.Unavailable, railtest.Refuse(rail.InsufficientFunds),
	}).Draw(t, "rail"))
	m.reach(t.Context(), c)
}

func (m *debitModel) reach(ctx context.Context, c *modelCall) {
	c.arrived = true
	report := func(_ int, r rail.Result) { c.result = r }
	key := []string{m.key(c.row)}
	switch c.call {
	case callDebit:
		m.rail.Debit(ctx, []rail.Debit{c.debit}, report)
	case callLookup:
		m.rail.Lookup(ctx, key, report)
	case callCancel:
		m.rail.Cancel(ctx, key, report)
	case callNone:
	}
	if c.worker == nil {
		m.forget(c)
	}
}

// answer delivers the rail's answer to the worker.
func (m *debitModel) answer(t *rapid.T) {
	c := m.drawCall(t, "be answered", func(c *modelCall) bool { return c.arrived && c.worker != nil })
	m.handle(c.worker, answer{index: c.row, call: c.call, result: c.result})
	m.forget(c)
}

// giveUp ends a worker's wait for an answer. The call may arrive later, or never.
func (m *debitModel) giveUp(t *rapid.T) {
	c := m.drawCall(t, "be given up", func(c *modelCall) bool { return c.worker != nil })
	m.handle(c.worker, answer{index: c.row, call: c.call, result: rail.Result{Status: rail.Unknown}})
	c.worker = nil
	if c.arrived || rapid.Bool().Draw(t, "lost") {
		m.forget(c)
	}
}

// unreachable fails a call before it was sent.
func (m *debitModel) unreachable(t *rapid.T) {
	c := m.drawCall(t, "fail", func(c *modelCall) bool { return !c.arrived && c.worker != nil })
	status := rail.Unknown
	if c.call == callDebit {
		status = rail.Unavailable
	}
	m.handle(c.worker, answer{index: c.row, call: c.call, result: rail.Result{Status: status}})
	m.forget(c)
}

func (m *debitModel) forget(c *modelCall) {
	m.network = slices.DeleteFunc(m.network, func(o *modelCall) bool { return o == c })
}

// record writes the results of a worker, even if another worker holds the rows by now.
func (m *debitModel) record(t *rapid.T) {
	w := m.drawWorker(t, "record", func(w *modelWorker) bool { return len(w.results) > 0 })
	if err := w.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.makeStale()
}

// finish ends a run that has nothing more to do.
func (m *debitModel) finish(t *rapid.T) {
	w := m.drawWorker(t, "finish", func(w *modelWorker) bool { return len(w.todo) == 0 && !m.waits(w) })
	err := w.record(t.Context())
	if w.closed < w.chunk.Open {
		err = errors.Join(err, m.job.park(t.Context(), m.task))
	}
	if err != nil {
		t.Fatal(err)
	}
	m.remove(w)
}

func (m *debitModel) waits(w *modelWorker) bool {
	return slices.ContainsFunc(m.network, func(c *modelCall) bool { return c.worker == w })
}

// die removes a worker at any step. Its calls stay in flight.
func (m *debitModel) die(t *rapid.T) {
	m.remove(m.drawWorker(t, "die", func(*modelWorker) bool { return true }))
}

func (m *debitModel) remove(w *modelWorker) {
	m.workers = slices.DeleteFunc(m.workers, func(o *modelWorker) bool { return o == w })
	for _, c := range slices.Clone(m.network) {
		if c.worker != w {
			continue
		}
		if c.worker = nil; c.arrived {
			m.forget(c)
		}
	}
}

func (m *debitModel) exec(t *rapid.T, query string, args ...any) {
	if _, err := m.store.DB().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
	m.makeStale()
}

// mayBeDebited lists the outcomes, "" for open rows, that a debited row may have.
var mayBeDebited = []models.RowOutcome{"", models.OutcomeSucceeded, models.OutcomeUnconfirmed}

// check compares the final rows with the rail.
func (m *debitModel) check(t *rapid.T) {
	_, rows, err := m.store.GetBatch(t.Context(), m.site.ID, m.reference)
	if err != nil {
		t.Fatal(err)
	}
	debited := m.rail.Amounts()
	for _, r := range rows {
		was, amount := m.before[r.Index], debited[m.key(r.Index)]
		outcome := r.Outcome
		if r.CorrectedOutcome != "" {
			outcome = r.CorrectedOutcome
		}
		switch {
		case was.Outcome != "" && was.Outcome != r.Outcome:
			t.Fatalf("row %d was %s and is %s", r.Index, was.Outcome, r.Outcome)
		case amount != 0 && amount != r.Amount:
			t.Fatalf("row %d of %d: the rail has debited %d", r.Index, r.Amount, amount)
		case outcome == models.OutcomeSucceeded && amount == 0:
			t.Fatalf("row %d succeeded, and the rail has not debited it", r.Index)
		case amount != 0 && !slices.Contains(mayBeDebited, outcome):
			t.Fatalf("row %d is %s, and the rail has debited it", r.Index, outcome)
		}
		m.before[r.Index] = r
	}
}

// settleAll lets the calls in flight arrive, some of them at the very end, while the rail answers
// and one worker lives. Then every row must be final and agree with the rail.
func (m *debitModel) settleAll(t *rapid.T) {
	for _, w := range slices.Clone(m.workers) {
		m.remove(w)
	}
	m.rail.SetDefault(railtest.Succeed)
	m.arriveSome(t, func() bool { return rapid.Bool().Draw(t, "in time") })
	for tries := 0; !m.final(t); tries++ {
		if tries == 20 {
			t.Fatal("the rows are not final after 20 runs")
		}
		m.expireLeases(t)
		if err := m.job.Run(t.Context(), models.Task{ID: m.task}); err != nil {
			t.Fatal(err)
		}
		m.sweep(t)
		m.check(t)
		m.advance(t, 10*time.Minute)
	}
	m.arriveSome(t, func() bool { return true })
	m.check(t)
}

func (m *debitModel) arriveSome(t *rapid.T, arrives func() bool) {
	for _, c := range slices.Clone(m.network) {
		if arrives() {
			m.reach(t.Context(), c)
		}
	}
	m.check(t)
}

func (m *debitModel) final(t *rapid.T) bool {
	batch, rows, err := m.store.GetBatch(t.Context(), m.site.ID, m.reference)
	if err != nil {
		t.Fatal(err)
	}
	open := slices.ContainsFunc(rows, func(r models.BatchRow) bool {
		return r.Outcome == "" || r.Outcome == models.OutcomeUnconfirmed && r.CorrectedOutcome == ""
	})
	return !open && batch.State == models.BatchSettled
}
