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

// TestDebitModel takes the workers' code apart at its crash points (claim, hold, rail call, answer, record, park) and lets any
// number of workers go through them in any order, on real Postgres, while tasks come twice, workers die or sleep, requests and
// answers are lost or late, leases run out, the batch is cancelled, the customer leaves and time goes by.
//
// The model is one word for each row, the rail's: what has arrived under its key first, a debit (and how it ended) or a
// cancellation, or nothing yet. A rail that keeps its word debits a key once at the most; what is checked is that the books
// say the same as the rail, at every moment as far as they say anything final, and in full in the end:
//
//   - a row is said to have succeeded only if the rail has debited it;
//   - a row that ended otherwise was not debited, and will not be, whatever is still on its way;
//   - but for unconfirmed ones, which the truth corrects;
//   - what is final stays, and every row becomes final once the rail can be reached and a worker lives.
func TestDebitModel(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	site := modelstest.Site(t, store)
	prepareLosses(t, store)
	lives := 0
	rapid.Check(t, func(rt *rapid.T) {
		lives++
		reference := fmt.Sprint(lives)
		modelstest.Customer(t, store, site.ID, reference, models.BehaviourPays)
		done := modelstest.Submit(t, store, modelstest.Batch(site, reference, reference, reference, "nobody"))
		l := &debitLife{
			t: t, store: store, site: site, reference: reference, batch: done.Batch.ID, task: done.Tasks[0], rail: railtest.NewScripted(),
			before: map[int]models.BatchRow{},
		}
		l.job = &DebitRows{Store: store, Rail: l.rail, Permits: NewPermits(64), Now: l.now, Log: slog.New(slog.DiscardHandler)}
		rt.Repeat(map[string]func(*rapid.T){
			"deliver":         l.deliver,
			"send":            l.send,
			"arrive":          l.arrive,
			"answer":          l.answer,
			"give up waiting": l.giveUp,
			"rail is down":    l.unreachable,
			"record":          l.record,
			"end":             l.end,
			"die":             l.die,
			"leases run out":  l.leasesRunOut,
			"cancel":          l.cancel,
			"customer leaves": l.revoke,
			"time":            l.time,
			"sweep":           l.sweep,
			"back up":         l.backUp,
			"loss":            l.lose,
			"loss of all":     l.loseAll,
			"":                l.check,
		})
		l.settle(rt)
	})
	modelstest.Audit(t, store)
}

// debitLife is one batch on its way.
type debitLife struct {
	t         *testing.T
	store     *models.Store
	site      models.Site
	reference string
	batch     models.BatchID
	task      models.TaskID
	rail      *railtest.Scripted
	job       *DebitRows
	before    map[int]models.BatchRow
	age       time.Duration // that the batch has had, but for its end

	workers []*modelWorker
	network []*modelCall
	stale   bool // what the worker at hand has read is no longer fresh

	backedUp bool // there is something that a loss can bring back
}

// modelWorker is one run of the task, stopped between two of its steps.
type modelWorker struct {
	*chunkRun
	todo  map[int]railCall // rows that need a call
	stale bool             // something happened since it has read the rows
}

// modelCall is a call on its way to the rail, or its answer on its way back.
type modelCall struct {
	worker  *modelWorker // nil once nobody waits for it
	row     int
	call    railCall
	debit   rail.Debit
	arrived bool
	result  rail.Result
}

// now is the clock of all workers: it stands still, unless what a worker has read is too old to go by.
func (l *debitLife) now() time.Time {
	if l.stale {
		return time.Unix(0, 0).Add(time.Hour)
	}
	return time.Unix(0, 0)
}

// deliver is a delivery of the task: the first one, a second one at the same time, or one after its lease.
func (l *debitLife) deliver(t *rapid.T) {
	l.stale = false
	chunk, err := l.store.ClaimChunk(t.Context(), l.task, models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
	if errors.Is(err, models.ErrNotFound) {
		t.Skip("the task is done")
	}
	if err != nil {
		t.Fatal(err)
	}
	l.ageAll()
	w := &modelWorker{chunkRun: newChunkRun(l.job, models.Task{ID: l.task}), todo: map[int]railCall{}}
	w.note(w.add(&claimed{Chunk: chunk, readAt: l.now()}))
	l.workers = append(l.workers, w)
}

func (w *modelWorker) note(todo map[railCall][]int) {
	for call, rows := range todo {
		for _, row := range rows {
			w.todo[row] = call
		}
	}
}

// ageAll makes what all workers have read old: something has changed.
func (l *debitLife) ageAll() {
	for _, w := range l.workers {
		w.stale = true
	}
}

func (l *debitLife) someWorker(t *rapid.T, what string, may func(*modelWorker) bool) *modelWorker {
	var able []*modelWorker
	for _, w := range l.workers {
		if may(w) {
			able = append(able, w)
		}
	}
	if len(able) == 0 {
		t.Skip("no worker can " + what)
	}
	return able[rapid.IntRange(0, len(able)-1).Draw(t, "worker")]
}

// send makes sure of the lease, and sends a call on its way.
func (l *debitLife) send(t *rapid.T) {
	w := l.someWorker(t, "send", func(w *modelWorker) bool { return len(w.todo) > 0 })
	row := rapid.SampledFrom(slices.Sorted(maps.Keys(w.todo))).Draw(t, "row")
	call := w.todo[row]
	delete(w.todo, row)
	c := &modelCall{worker: w, row: row, call: call}
	if call == callDebit {
		l.stale = w.stale
		w.job.Permits.Take(t.Context(), w.job.Permits.Turn(w.task.OrganisationID), 1)
		if len(w.confirmed(t.Context(), w.pick([]int{row}))) == 0 {
			l.take(w, <-w.answers)
			return
		}
		c.debit = w.rows[row].debit()
	}
	l.network = append(l.network, c)
}

// take lets a worker go on from an answer.
func (l *debitLife) take(w *modelWorker, a answer) {
	todo := map[railCall][]int{}
	w.takeOne(todo, a)
	w.note(todo)
}

func (l *debitLife) someCall(t *rapid.T, what string, may func(*modelCall) bool) *modelCall {
	var able []*modelCall
	for _, c := range l.network {
		if may(c) {
			able = append(able, c)
		}
	}
	if len(able) == 0 {
		t.Skip("no call can " + what)
	}
	return able[rapid.IntRange(0, len(able)-1).Draw(t, "call")]
}

// arrive lets a call reach the rail, which has an opinion of its own about new debits.
func (l *debitLife) arrive(t *rapid.T) {
	c := l.someCall(t, "arrive", func(c *modelCall) bool { return !c.arrived })
	l.rail.Otherwise(rapid.SampledFrom([]railtest.Step{
		railtest.Succeed, railtest.Succeed, railtest.Unavailable, railtest.Refuse(rail.InsufficientFunds),
	}).Draw(t, "rail"))
	l.reach(t.Context(), c)
}

func (l *debitLife) reach(ctx context.Context, c *modelCall) {
	c.arrived = true
	report := func(_ int, r rail.Result) { c.result = r }
	key := []string{l.key(c.row)}
	switch c.call {
	case callDebit:
		l.rail.Debit(ctx, []rail.Debit{c.debit}, report)
	case callLookup:
		l.rail.Lookup(ctx, key, report)
	case callCancel:
		l.rail.Cancel(ctx, key, report)
	case callNone:
	}
	if c.worker == nil {
		l.forget(c)
	}
}

// answer brings a worker the rail's answer.
func (l *debitLife) answer(t *rapid.T) {
	c := l.someCall(t, "be answered", func(c *modelCall) bool { return c.arrived && c.worker != nil })
	l.take(c.worker, answer{index: c.row, call: c.call, result: c.result})
	l.forget(c)
}

// giveUp ends a worker's wait for an answer. The call may still arrive, or never.
func (l *debitLife) giveUp(t *rapid.T) {
	c := l.someCall(t, "be given up", func(c *modelCall) bool { return c.worker != nil })
	l.take(c.worker, answer{index: c.row, call: c.call, result: rail.Result{Status: rail.Unknown}})
	c.worker = nil
	if c.arrived || rapid.Bool().Draw(t, "lost") {
		l.forget(c)
	}
}

// unreachable fails a call before anything of it has left.
func (l *debitLife) unreachable(t *rapid.T) {
	c := l.someCall(t, "fail", func(c *modelCall) bool { return !c.arrived && c.worker != nil })
	status := rail.Unknown
	if c.call == callDebit {
		status = rail.Unavailable
	}
	l.take(c.worker, answer{index: c.row, call: c.call, result: rail.Result{Status: status}})
	l.forget(c)
}

func (l *debitLife) forget(c *modelCall) {
	l.network = slices.DeleteFunc(l.network, func(o *modelCall) bool { return o == c })
}

// record writes what a worker knows, whoever holds the rows by now.
func (l *debitLife) record(t *rapid.T) {
	w := l.someWorker(t, "record", func(w *modelWorker) bool { return len(w.known) > 0 })
	if err := w.record(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.ageAll()
}

// end is the end of a run that has nothing more to do.
func (l *debitLife) end(t *rapid.T) {
	w := l.someWorker(t, "end", func(w *modelWorker) bool { return len(w.todo) == 0 && !l.waits(w) })
	err := w.record(t.Context())
	if w.closed < w.chunk.Open {
		err = errors.Join(err, l.job.park(t.Context(), l.task))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.remove(w)
}

func (l *debitLife) waits(w *modelWorker) bool {
	return slices.ContainsFunc(l.network, func(c *modelCall) bool { return c.worker == w })
}

// die is the end of a worker wherever it is. Its calls go their way.
func (l *debitLife) die(t *rapid.T) {
	l.remove(l.someWorker(t, "die", func(*modelWorker) bool { return true }))
}

func (l *debitLife) remove(w *modelWorker) {
	l.workers = slices.DeleteFunc(l.workers, func(o *modelWorker) bool { return o == w })
	for _, c := range slices.Clone(l.network) {
		if c.worker != w {
			continue
		}
		if c.worker = nil; c.arrived {
			l.forget(c)
		}
	}
}

func (l *debitLife) exec(t *rapid.T, query string, args ...any) {
	if _, err := l.store.DB().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
	l.ageAll()
}

func (l *debitLife) leasesRunOut(t *rapid.T) {
	l.exec(t, "UPDATE batch_rows SET lease_until = clock_timestamp() WHERE batch_id = ? AND lease_until IS NOT NULL", l.batch)
}

func (l *debitLife) cancel(t *rapid.T) {
	l.ageAll()
	if _, _, err := l.store.CancelBatch(t.Context(), l.site.ID, l.reference); err != nil {
		t.Fatal(err)
	}
}

func (l *debitLife) revoke(t *rapid.T) {
	l.ageAll()
	if _, err := l.store.RevokeCustomer(t.Context(), l.site.ID, l.reference); err != nil {
		t.Fatal(err)
	}
}

// time goes on: a little, to the last half hour, to the deadline; never so far that the rail need not be asked any more.
func (l *debitLife) time(t *rapid.T) {
	step := rapid.SampledFrom([]time.Duration{
		2 * time.Second, time.Minute, 5 * time.Hour, models.SettleWithin - models.LastAttemptBefore, models.LastAttemptBefore,
	}).Draw(t, "step")
	if l.age+step > models.ConfirmWithin {
		t.Skip("the batch is too old")
	}
	l.age += step
	l.advance(t, step)
}

func (l *debitLife) advance(t *rapid.T, by time.Duration) {
	l.exec(t, "UPDATE service_clock SET offset_ms = offset_ms + ?", by.Milliseconds())
}

func (l *debitLife) sweep(t *rapid.T) {
	l.ageAll()
	if _, err := l.store.CloseUnsentRows(t.Context()); err != nil && !errors.Is(err, models.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := l.store.CloseOverdueBatch(t.Context()); err != nil && !errors.Is(err, models.ErrNotFound) {
		t.Fatal(err)
	}
}

// check holds the books against the rail, as far as they say anything final.
func (l *debitLife) check(t *rapid.T) {
	_, rows, err := l.store.GetBatch(t.Context(), l.site.ID, l.reference)
	if err != nil {
		t.Fatal(err)
	}
	debited := l.rail.Amounts()
	for _, r := range rows {
		was, amount := l.before[r.Index], debited[l.key(r.Index)]
		says := r.Outcome
		if r.CorrectedOutcome != "" {
			says = r.CorrectedOutcome
		}
		switch {
		case was.Outcome != "" && was.Outcome != r.Outcome:
			t.Fatalf("row %d was %s and is %s", r.Index, was.Outcome, r.Outcome)
		case amount != 0 && amount != r.Amount:
			t.Fatalf("row %d of %d: the rail has debited %d", r.Index, r.Amount, amount)
		case says == models.OutcomeSucceeded && amount == 0:
			t.Fatalf("row %d succeeded, and the rail has not debited it", r.Index)
		case amount != 0 && says != models.OutcomeSucceeded && says != "" && says != models.OutcomeUnconfirmed:
			t.Fatalf("row %d is debited, and is %s", r.Index, says)
		}
		l.before[r.Index] = r
	}
}

// settle lets what is on its way arrive, some of it only after everything else, while the rail can be reached and one worker
// lives. Then every row is final, and says what the rail says.
func (l *debitLife) settle(t *rapid.T) {
	for _, w := range slices.Clone(l.workers) {
		l.remove(w)
	}
	l.rail.Otherwise(railtest.Succeed)
	l.arriveAll(t, func() bool { return rapid.Bool().Draw(t, "in time") })
	for tries := 0; !l.final(t); tries++ {
		if tries == 20 {
			t.Fatal("the rows never become final")
		}
		l.leasesRunOut(t)
		if err := l.job.Run(t.Context(), models.Task{ID: l.task}); err != nil {
			t.Fatal(err)
		}
		l.sweep(t)
		l.check(t)
		l.advance(t, 10*time.Minute)
	}
	l.arriveAll(t, func() bool { return true })
	l.check(t)
}

func (l *debitLife) arriveAll(t *rapid.T, now func() bool) {
	for _, c := range slices.Clone(l.network) {
		if now() {
			l.reach(t.Context(), c)
		}
	}
	l.check(t)
}

func (l *debitLife) final(t *rapid.T) bool {
	batch, rows, err := l.store.GetBatch(t.Context(), l.site.ID, l.reference)
	if err != nil {
		t.Fatal(err)
	}
	open := slices.ContainsFunc(rows, func(r models.BatchRow) bool {
		return r.Outcome == "" || r.Outcome == models.OutcomeUnconfirmed && r.CorrectedOutcome == ""
	})
	return !open && batch.State == models.BatchSettled
}
