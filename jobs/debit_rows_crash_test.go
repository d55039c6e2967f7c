package jobs

import (
	"context"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestWorkerDiesBeforeTheRailCall(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows}); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("inProgress") // the lease has not expired
	b.expireLeases()
	b.run()
	b.want("succeeded")
	b.wantMoved(0)
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Debits: 1, Lookups: 1}) {
		t.Errorf("calls %+v, want a look-up before the debit", calls)
	}
}

// A claim whose answer was lost delays its rows only until the claim is abandoned. The next run
// cannot know whether a call was made, so it looks the rows up. Rows of other claims stay leased.
func TestClaimOfUnknownFateIsAbandoned(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	lease, lost := models.NewLeaseToken(), models.Part{First: 1, Rows: 1}
	for _, part := range []models.Part{{Rows: 1}, lost, {First: 2, Rows: 1}} {
		if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], lease, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.store.AbandonClaim(t.Context(), b.tasks[0], models.NewLeaseToken(), lost); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("inProgress", "inProgress", "inProgress") // another claim was abandoned
	if err := b.store.AbandonClaim(t.Context(), b.tasks[0], lease, lost); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("inProgress", "succeeded", "inProgress")
	b.wantMoved(1)
	if calls := b.rail.Calls(b.key(1)); calls != (railtest.Calls{Debits: 1, Lookups: 1}) {
		t.Errorf("calls %+v, want a look-up before the debit", calls)
	}
}

// wiredStores returns two stores on one database: the test's, and that of a job, whose connections
// run through the wire.
func wiredStores(t *testing.T) (own, job *models.Store, line *modelstest.Line) {
	t.Helper()
	dsn := modelstest.DSN(t)
	own = modelstest.Connect(t, dsn)
	modelstest.SetClock(t, own, noon)
	line, throughLine := modelstest.Wire(t, dsn)
	return own, modelstest.Connect(t, throughLine), line
}

// Results are recorded over a new connection if the open ones have frozen. No row is called again.
func TestConnectionsFreezeBeforeTheRecord(t *testing.T) {
	b := newBilling(t)
	var line *modelstest.Line
	b.store, b.job.Store, line = wiredStores(t)
	b.site = modelstest.Site(t, b.store)
	b.submit("ada", "bob")
	task := b.taskOf(b.tasks[0])
	task.Rows = 2 // one claim takes all rows
	clock := &manualClock{}
	b.job.Now = clock.now
	b.rail.LimitAdmission()
	done := make(chan error, 1)
	go func() { done <- b.job.Run(t.Context(), task) }()
	b.rail.AwaitAdmitCallers(t, 1)
	line.FreezeOpen()
	b.rail.Allow(2)
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	b.want("succeeded", "succeeded")
	b.wantMoved(0, 1)
	b.wantCalls(0, railtest.Calls{Debits: 1})
	b.wantCalls(1, railtest.Calls{Debits: 1})
}

func TestWorkerDiesDuringTheRailCall(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.Script(b.key(0), railtest.Hang, railtest.Succeed)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.expireLeases() // the worker is frozen: its call hangs
	b.rail.SetDefault(railtest.Succeed)
	b.run()
	b.want("succeeded")
	b.rail.Release(b.key(0)) // the frozen worker's debit arrives under the same key
	wait()
	b.want("succeeded")
	b.wantMoved(0)
}

func TestWorkerDiesBeforeTheRecord(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	chunk, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows})
	if err != nil {
		t.Fatal(err)
	}
	b.rail.Script(b.key(1), railtest.Refuse(rail.InsufficientFunds))
	run := newChunkRun(b.job, b.taskOf(chunk.Task))
	run.addRows(&claim{Chunk: chunk})
	b.send(t.Context(), run, 0, 1)
	b.expireLeases()
	b.run()
	b.want("succeeded", "insufficientFunds")
	b.wantMoved(0)
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Debits: 1, Lookups: 1}) {
		t.Errorf("calls %+v", calls)
	}
}

func TestShutdownReleasesUnsentRows(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	b.job.Permits = NewPermits(1)
	b.rail.SetDefault(railtest.Hang)
	ctx, shutdown := context.WithCancel(t.Context())
	wait := b.start(ctx)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	shutdown()
	b.rail.SetDefault(railtest.Succeed)
	b.rail.Release(b.key(0)) // the run waits for calls in flight
	wait()
	b.want("succeeded", "pending", "pending")
	b.run()
	b.want("succeeded", "succeeded", "succeeded")
	b.wantMoved(0, 1, 2)
}

// A call that outlasts a shutdown keeps the lease of its row, and its answer is recorded.
func TestShutdownDuringASlowCall(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.Script(b.key(0), railtest.Hang, railtest.Refuse(rail.InsufficientFunds))
	ctx, shutdown := context.WithCancel(t.Context())
	defer shutdown()
	wait := b.start(ctx)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	// awaitLease waits until the time left of the row's lease is as wanted.
	awaitLease := func(description string, is func(left time.Duration) bool) {
		t.Helper()
		for began := time.Now(); ; <-poll.C {
			var seconds float64
			query := b.store.DB().NewRaw(
				"SELECT coalesce(extract(epoch FROM lease_until - clock_timestamp()), 0) FROM batch_rows")
			if err := query.Scan(t.Context(), &seconds); err != nil {
				t.Fatal(err)
			}
			if is(time.Duration(seconds * float64(time.Second))) {
				return
			}
			if time.Since(began) > models.RowLease {
				t.Fatalf("the lease was not %s: %.1f s left", description, seconds)
			}
		}
	}
	const half = models.RowLease - heartbeatInterval/2
	awaitLease("half way to its first extension", func(left time.Duration) bool { return left < half })
	shutdown()
	awaitLease("extended after the shutdown", func(left time.Duration) bool { return left > half })
	b.rail.Release(b.key(0))
	wait()
	b.want("insufficientFunds")
}

func TestShutdownBeforeTheClaim(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	bounds := models.Dispatch{InFlight: 1}
	if _, err := b.store.ClaimTasks(t.Context(), b.tasks, bounds, bounds); err != nil {
		t.Fatal(err)
	}
	ctx, shutdown := context.WithCancel(t.Context())
	shutdown()
	b.start(ctx)()
	again, err := b.store.ClaimTasks(t.Context(), b.tasks, bounds, bounds) // at once, not after a lease
	if err != nil || len(again) != 1 {
		t.Errorf("due again: %v, %v", again, err)
	}
	b.want("pending")
}
