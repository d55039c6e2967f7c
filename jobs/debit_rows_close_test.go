package jobs

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
)

func TestLinkRevokedWhileInDoubt(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.rail.Script(b.key(0), railtest.LoseRequest)
	b.rail.Script(b.key(1), railtest.LoseAnswer)
	b.rail.SetDefault(railtest.LoseRequest)
	if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows}); err != nil {
		t.Fatal(err)
	}
	b.expireLeases()
	for _, reference := range []string{"ada", "bob"} {
		if _, err := b.store.RevokeCustomer(t.Context(), b.site.ID, reference); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	b.want("customerNotActive", "customerNotActive")
	b.wantMoved()
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Lookups: 1, Cancels: 1}) {
		t.Errorf("calls %+v, want a cancellation of the debit that may be in flight", calls)
	}
}

func TestCancellationAgainstAnAttempt(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	b.rail.Script(b.key(0), railtest.Hang)
	b.rail.Script(b.key(1), railtest.Unavailable)
	b.rail.Script(b.key(2), railtest.LoseRequest)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	if _, _, err := b.store.CancelBatch(t.Context(), b.site.ID, "batch"); err != nil {
		t.Fatal(err)
	}
	b.rail.Release(b.key(0))
	wait()
	if got := b.outcomes(); got[0] != "succeeded" || got[1] != "cancelled" || got[2] != "inProgress" {
		t.Errorf("outcomes %v", got)
	}
	b.advance(2 * time.Second)
	b.run()
	b.want("succeeded", "cancelled", "cancelled") // no debit begins after a cancellation: the rail closes the third row
	b.wantMoved(0)
}

func TestDeadlineClosesOnTheRail(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	b.rail.Script(b.key(0), railtest.Unavailable)
	b.rail.Script(b.key(1), railtest.LoseRequest)
	b.run()
	b.want("pending", "inProgress", "succeeded")
	b.advance(models.SettleWithin - models.LastAttemptBefore)
	b.run()
	b.want("timedOut", "timedOut", "succeeded")
	b.wantMoved(2)
	b.rail.SetDefault(railtest.Succeed)
	if calls := b.rail.Calls(b.key(0)); calls != (railtest.Calls{Debits: 1, Cancels: 1}) {
		t.Errorf("calls %+v, want a cancellation: only the rail closes a row that was called, whatever it answered",
			calls)
	}
	if calls := b.rail.Calls(b.key(1)); calls.Debits != 1 || calls.Cancels != 1 {
		t.Errorf("calls %+v, want a cancellation: no debit begins in the last half hour", calls)
	}
}

func TestDeadlineAgainstALateAnswer(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.rail.Script(b.key(0), railtest.Hang)
	b.rail.Script(b.key(1), railtest.Hang)
	ctx, die := context.WithCancel(t.Context())
	defer die()
	wait := b.start(ctx)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.rail.AwaitCalls(t, b.key(1), railtest.Calls{Debits: 1})
	b.advance(models.SettleWithin)
	b.close()
	b.want("unconfirmed", "unconfirmed")

	b.rail.Release(b.key(0)) // the worker still waits, and its answer corrects the row
	b.rail.Script(b.key(1), railtest.Refuse(rail.InsufficientFunds))
	b.rail.Release(b.key(1))
	wait()
	b.want("unconfirmed→succeeded", "unconfirmed")
	b.run()
	b.want("unconfirmed→succeeded", "unconfirmed→insufficientFunds")
	b.wantMoved(0)
}

func TestRailGoneUntilAfterTheDeadline(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.rail.Script(b.key(0), railtest.LoseAnswer)
	b.rail.Script(b.key(1), railtest.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	chunk, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows})
	if err != nil {
		t.Fatal(err)
	}
	run := newChunkRun(b.job, b.taskOf(chunk.Task))
	run.addRows(&claim{Chunk: chunk})
	cancel()
	b.send(t.Context(), run, 0)
	b.send(ctx, run, 1)
	b.rail.SetDown(true)
	b.expireLeases()
	for _, by := range []time.Duration{0, models.SettleWithin - models.LastAttemptBefore, time.Minute} {
		b.advance(by)
		b.run()
		b.want("inProgress", "inProgress")
	}
	b.advance(models.LastAttemptBefore)
	b.close()
	b.want("unconfirmed", "unconfirmed")
	b.run()
	b.want("unconfirmed", "unconfirmed")
	b.rail.SetDown(false)
	b.advance(10 * time.Minute)
	b.run()
	b.want("unconfirmed→succeeded", "unconfirmed→timedOut")
	b.wantMoved(0)
}

func TestClockStepDuringAnAttempt(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.rail.Script(b.key(0), railtest.Hang)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.advance(12 * time.Hour) // leases go by real time: no other worker takes the row
	b.run()
	if calls := b.rail.Calls(b.key(0)); calls.Lookups != 0 {
		t.Error("a clock step took a living worker's row")
	}
	b.rail.Release(b.key(0))
	wait()
	b.want("succeeded")
	b.wantMoved(0)
}

func TestLinkRevokedBeforeALaterWave(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.job.Permits = NewPermits(1)
	began, calls := time.Now(), atomic.Int64{}
	b.job.Now = func() time.Time { // advances with each call, so that no row is fresh
		return began.Add(time.Duration(calls.Add(1)) * 2 * recheckAfter)
	}
	b.rail.SetDefault(railtest.Hang)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	if _, err := b.store.RevokeCustomer(t.Context(), b.site.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	b.rail.SetDefault(railtest.Succeed)
	b.rail.Release(b.key(0))
	wait()
	b.want("succeeded", "customerNotActive")
	b.wantMoved(0)
}
