package main

import (
	"context"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// stallingRail lets debits wait while it stalls. When they may go on, it says that the bank was unavailable: nothing was debited,
// the row may be tried again by whoever still holds it.
type stallingRail struct {
	*railtest.Scripted
	stalls  atomic.Bool
	waiting atomic.Int64
	goOn    chan struct{}
	release func() // lets them go on
}

func newStallingRail() *stallingRail {
	r := &stallingRail{Scripted: railtest.NewScripted(), goOn: make(chan struct{})}
	r.release = sync.OnceFunc(func() { close(r.goOn) })
	r.stalls.Store(true)
	return r
}

func (r *stallingRail) Debit(ctx context.Context, debits []rail.Debit, report func(int, rail.Result)) {
	if !r.stalls.Load() {
		r.Scripted.Debit(ctx, debits, report)
		return
	}
	r.waiting.Add(int64(len(debits)))
	<-r.goOn
	for i := range debits {
		report(i, rail.Result{Status: rail.Unavailable})
	}
}

// stalledFleet is a fleet whose one worker has sent all debits of a batch to a rail that does not answer.
type stalledFleet struct {
	*fleet
	rail *stallingRail
}

const stalledRows = 60

func newStalledFleet(t *testing.T) *stalledFleet {
	t.Parallel()
	stalling := newStallingRail()
	handler, err := rail.NewServer(rail.ServerConfig{
		Rail: stalling, Keys: []rail.SigningKey{{ID: "test", Secret: []byte("secret")}}, WorkTimeout: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	gateway := httptest.NewServer(handler)
	t.Cleanup(gateway.Close)
	t.Cleanup(stalling.release) // before: the gateway waits for its requests
	f := &stalledFleet{rail: stalling, fleet: newFleet(t, modelstest.DSN(t),
		"SVC_RAIL", "http", "SVC_RAIL_URL", gateway.URL, "SVC_RAIL_KEY", "test:secret")}
	modelstest.Customer(t, f.store, f.site.ID, "ada", models.BehaviourPays)
	f.startWorker()
	customers := make([]string, stalledRows)
	for i := range customers {
		customers[i] = "ada"
	}
	modelstest.Submit(t, f.store, modelstest.Batch(f.site, "stalled", customers...))
	f.await("the rail has all debits in hand", func() bool { return stalling.waiting.Load() == stalledRows })
	return f
}

// await waits until there is what is waited for.
func (f *fleet) await(what string, done func() bool) {
	f.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-deadline:
			f.Fatalf("it does not come to this: %s", what)
		}
	}
}

func (f *stalledFleet) awaitSettled() {
	f.Helper()
	f.await("all rows are settled", func() bool { return f.countRows("state <> 'settled'") == 0 })
}

// books are all that is written about batches and money.
func (f *stalledFleet) books() (text string) {
	f.Helper()
	if err := f.store.DB().NewRaw(`
SELECT (SELECT string_agg(b::text, E'\n' ORDER BY b::text) FROM batches b) ||
       (SELECT string_agg(r::text, E'\n' ORDER BY r.row_index) FROM batch_rows r) ||
       (SELECT string_agg(e::text, E'\n' ORDER BY e::text) FROM ledger_entries e) ||
       (SELECT count(*) FROM outbox WHERE kind = 'debitRows')`).Scan(f.Context(), &text); err != nil {
		f.Fatal(err)
	}
	return text
}

// A worker that was stopped, and whose rows another one has settled meanwhile, wakes up with answers that say otherwise: nothing
// of that is written.
func TestPausedWorkerChangesNothing(t *testing.T) {
	f := newStalledFleet(t)
	paused := f.workers[0]
	_ = paused.cmd.Process.Signal(syscall.SIGSTOP)
	for _, query := range []string{ // time goes by, until the leases run out
		"UPDATE batch_rows SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL",
		"UPDATE outbox SET redispatch_after = clock_timestamp() WHERE dispatched_at IS NOT NULL",
	} {
		if _, err := f.store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	f.rail.stalls.Store(false)
	f.startWorker()
	f.awaitSettled()
	books := f.books()
	f.rail.release()
	_ = paused.cmd.Process.Signal(syscall.SIGCONT)
	if code := paused.terminate(); code != 0 { // it waits for what it has begun
		t.Errorf("exit code %d", code)
	}
	if after := f.books(); after != books {
		t.Errorf("the books were\n%s\nand are\n%s", books, after)
	}
	if n := len(f.rail.Moved()); n != stalledRows {
		t.Errorf("%d debits for %d rows", n, stalledRows)
	}
	modelstest.Audit(t, f.store)
}

// The rows of a worker that is killed amid its debits go on within 30 seconds: its lease is half of that, by real time.
func TestDeadWorkersRowsGoOn(t *testing.T) {
	f := newStalledFleet(t)
	f.rail.stalls.Store(false)
	f.startWorker()
	f.workers[0].kill()
	died := time.Now()
	f.awaitSettled()
	if took := time.Since(died); took > 30*time.Second {
		t.Errorf("a dead worker's rows were settled after %s", took)
	}
	if n := len(f.rail.Moved()); n != stalledRows {
		t.Errorf("%d debits for %d rows", n, stalledRows)
	}
	modelstest.Audit(t, f.store)
}
