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

// stallingRail delays debits while it is stalled. Once released, it reports them as unavailable:
// nothing was debited, and the holder of the lease may try again.
type stallingRail struct {
	*railtest.Scripted
	stalled  atomic.Bool
	waiting  atomic.Int64 // delayed debits
	released chan struct{}
	release  func() // ends the delay
}

func newStallingRail() *stallingRail {
	r := &stallingRail{Scripted: railtest.NewScripted(), released: make(chan struct{})}
	r.release = sync.OnceFunc(func() { close(r.released) })
	r.stalled.Store(true)
	return r
}

func (r *stallingRail) Debit(ctx context.Context, debits []rail.Debit, report func(int, rail.Result)) {
	if !r.stalled.Load() {
		r.Scripted.Debit(ctx, debits, report)
		return
	}
	r.waiting.Add(int64(len(debits)))
	<-r.released
	for i := range debits {
		report(i, rail.Result{Status: rail.Unavailable})
	}
}

// stalledFleet is a fleet whose only worker has sent all debits of a batch to a stalled rail.
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
	t.Cleanup(stalling.release) // runs first, because the gateway waits for its requests
	f := &stalledFleet{rail: stalling, fleet: newFleet(t, modelstest.DSN(t),
		"SVC_RAIL", "http", "SVC_RAIL_URL", gateway.URL, "SVC_RAIL_KEY", "test:secret")}
	modelstest.Customer(t, f.store, f.site.ID, "ada", models.BehaviourPays)
	f.startWorker()
	customers := make([]string, stalledRows)
	for i := range customers {
		customers[i] = "ada"
	}
	modelstest.Submit(t, f.store, modelstest.Batch(f.site, "stalled", customers...))
	f.await("the rail has received all debits", func() bool { return stalling.waiting.Load() == stalledRows })
	return f
}

// await polls until done returns true.
func (f *fleet) await(what string, done func() bool) {
	f.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-deadline:
			f.Fatalf("timed out waiting until %s", what)
		}
	}
}

func (f *stalledFleet) awaitSettled() {
	f.Helper()
	f.await("all rows are settled", func() bool { return f.countRows("state <> 'settled'") == 0 })
}

// books returns the stored state of batches and money as text.
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

// A worker is suspended, and another worker settles its rows. The first worker then resumes with
// different answers, and writes none of them.
func TestPausedWorkerChangesNothing(t *testing.T) {
	f := newStalledFleet(t)
	paused := f.workers[0]
	_ = paused.cmd.Process.Signal(syscall.SIGSTOP)
	for _, query := range []string{ // end the leases
		"UPDATE batch_rows SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL",
		"UPDATE outbox SET redispatch_after = clock_timestamp() WHERE dispatched_at IS NOT NULL",
	} {
		if _, err := f.store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	f.rail.stalled.Store(false)
	f.startWorker()
	f.awaitSettled()
	books := f.books()
	f.rail.release()
	_ = paused.cmd.Process.Signal(syscall.SIGCONT)
	if code := paused.terminate(); code != 0 { // it waits for its debits
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

// The rows of a killed worker are settled within 30 seconds: another worker resumes them when the
// lease ends.
func TestRowsOfKilledWorkerAreResumed(t *testing.T) {
	f := newStalledFleet(t)
	f.rail.stalled.Store(false)
	f.startWorker()
	f.workers[0].kill()
	died := time.Now()
	f.awaitSettled()
	if took := time.Since(died); took > 30*time.Second {
		t.Errorf("a killed worker's rows were settled after %s", took)
	}
	if n := len(f.rail.Moved()); n != stalledRows {
		t.Errorf("%d debits for %d rows", n, stalledRows)
	}
	modelstest.Audit(t, f.store)
}
