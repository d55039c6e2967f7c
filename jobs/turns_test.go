package jobs

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// stoppedClock is a process's clock that goes on only as it is told: what was read is fresh until then.
type stoppedClock struct{ ahead atomic.Int64 }

func (c *stoppedClock) now() time.Time { return time.Unix(0, c.ahead.Load()) }

func (c *stoppedClock) goOn() { c.ahead.Add(int64(freshFor)) }

// waitingForTurns starts the batch's first task on a rail that is at its rate, and comes back once all its rows wait for turns,
// and what was read of them is no longer fresh.
func (b *billing) waitingForTurns(ctx context.Context) (wait func()) {
	b.Helper()
	clock := &stoppedClock{}
	b.job.Now = clock.now
	b.rail.Limit()
	wait = b.start(ctx)
	b.rail.AwaitWaiting(b.T, 1)
	clock.goOn()
	return wait
}

func (b *billing) revoke(customer string) {
	b.Helper()
	if _, err := b.store.RevokeCustomer(b.Context(), b.site.ID, customer); err != nil {
		b.Fatal(err)
	}
}

// calls checks the calls that a row was in.
func (b *billing) calls(row int, want railtest.Calls) {
	b.Helper()
	if got := b.rail.Calls(b.key(row)); got != want {
		b.Errorf("row %d was in %+v, want %+v", row, got, want)
	}
}

func TestLinkRevokedWhileWaitingForATurn(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	wait := b.waitingForTurns(t.Context())
	b.revoke("bob")
	b.rail.Allow(2)
	wait()
	b.want("succeeded", "customerNotActive")
	b.moved(0)
	b.calls(1, railtest.Calls{})
	b.wantPermitsBack(64, 80)
}

func TestBatchCancelledWhileWaitingForATurn(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	wait := b.waitingForTurns(t.Context())
	if _, _, err := b.store.CancelBatch(t.Context(), b.site.ID, "batch"); err != nil {
		t.Fatal(err)
	}
	b.rail.Allow(2)
	wait()
	b.want("cancelled", "cancelled")
	b.moved()
	b.calls(0, railtest.Calls{})
}

// No attempt begins in the last half hour before the deadline. The rail need not confirm that nothing was debited.
func TestLastHalfHourBeginsWhileWaitingForATurn(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	wait := b.waitingForTurns(t.Context())
	b.advance(models.SettleWithin - models.LastAttemptBefore)
	b.rail.Allow(2)
	wait()
	b.want("timedOut")
	b.moved()
	b.calls(0, railtest.Calls{})
	if _, rows, err := b.store.GetBatch(t.Context(), b.site.ID, "batch"); err != nil || rows[0].Attempts != 0 {
		t.Errorf("%d attempts without a debit call, %v", rows[0].Attempts, err)
	}
}

// A row in doubt waits twice: for the look-up's turn, and for the debit's.
func TestLinkRevokedWhileInDoubtAndWaitingForATurn(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(), models.Part{Rows: models.ChunkRows}); err != nil {
		t.Fatal(err)
	}
	b.workersDie()
	wait := b.waitingForTurns(t.Context())
	b.rail.Allow(1)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Lookups: 1})
	b.rail.AwaitWaiting(t, 1)
	b.revoke("ada")
	b.rail.Allow(2)
	wait()
	b.want("customerNotActive")
	b.moved()
	b.calls(0, railtest.Calls{Lookups: 1, Cancels: 1})
	if own, others := b.rail.Admitted(b.site.OrganisationID), b.rail.Admitted(models.OrganisationID{}); own != 1 || others != 2 {
		t.Errorf("%d turns for the debit, %d for what settles a doubt", own, others)
	}
}

func TestLeaseLostWhileWaitingForATurn(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	wait := b.waitingForTurns(t.Context())
	b.workersDie()
	b.rail.Allow(1)
	wait()
	b.want("inProgress")
	b.calls(0, railtest.Calls{})
	b.rail.Allow(2)
	b.run()
	b.want("succeeded")
	b.moved(0)
	b.calls(0, railtest.Calls{Debits: 1, Lookups: 1})
	b.wantPermitsBack(64, 80)
}

func TestShutdownWhileWaitingForATurn(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	ctx, shutdown := context.WithCancel(t.Context())
	wait := b.waitingForTurns(ctx)
	shutdown()
	wait()
	b.want("pending", "pending", "pending")
	b.calls(0, railtest.Calls{})
	b.wantPermitsBack(64, 80)
	b.rail.Allow(3)
	b.run() // at once
	b.want("succeeded", "succeeded", "succeeded")
	b.moved(0, 1, 2)
}

// Rows that wait for turns keep no permits from those of others: an organisation with much to do does not stand in the way of one
// with little.
func TestWaitingForTurnsLeavesPermitsToOthers(t *testing.T) {
	b := newBilling(t)
	b.job.Permits = NewPermits(8) // and 10 places
	b.submit(slices.Repeat([]string{"ada"}, 60)...)
	wait := b.waitingForTurns(t.Context())
	small := modelstest.Site(t, b.store)
	modelstest.Customer(t, b.store, small.ID, "bob", models.BehaviourPays)
	task := modelstest.Submit(t, b.store, modelstest.Batch(small, "small", "bob")).Tasks[0]
	done := make(chan error, 1)
	go func() {
		done <- b.job.Run(t.Context(), models.Task{ID: task, Kind: models.TaskDebitRows, OrganisationID: small.OrganisationID, Rows: 1})
	}()
	b.rail.Allow(1)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.rail.AwaitWaiting(t, 2)
	claimed := slices.DeleteFunc(b.outcomes(), func(s string) bool { return s == "pending" })
	if n := len(claimed); n > 11 {
		t.Errorf("%d rows are claimed for 10 places, of which one was debited", n)
	}
	b.rail.Allow(60)
	if err := <-done; err != nil {
		t.Error(err)
	}
	wait()
	b.want(slices.Repeat([]string{"succeeded"}, 60)...)
	b.wantPermitsBack(8, 10)
	modelstest.Audit(t, b.store)
}

// waitingForATurn starts the payment on a rail that is at its rate, and comes back once it waits for a turn, and what was read of
// its lease is no longer fresh.
func (b *till) waitingForATurn(ctx context.Context) (wait func()) {
	b.Helper()
	clock := &stoppedClock{}
	b.job.Now = clock.now
	b.rail.Limit()
	wait = b.start(ctx)
	b.rail.AwaitWaiting(b.T, 1)
	clock.goOn()
	return wait
}

func TestPaymentLeaseLostWhileWaitingForATurn(t *testing.T) {
	b := newTill(t)
	b.pay()
	wait := b.waitingForATurn(t.Context())
	b.workersDie()
	b.rail.Allow(1)
	wait()
	b.want("pending")
	b.calls(railtest.Calls{})
	b.rail.Allow(2)
	b.run()
	b.want("Settled")
	b.calls(railtest.Calls{Debits: 1, Lookups: 1})
	if own, others := b.rail.Admitted(b.site.OrganisationID), b.rail.Admitted(models.OrganisationID{}); own != 2 || others != 1 {
		t.Errorf("%d turns for debits, %d for the look-up", own, others)
	}
}

// A customer who has waited for a minute is not charged any more.
func TestTimeIsOverWhileAPaymentWaitsForATurn(t *testing.T) {
	b := newTill(t)
	b.pay()
	wait := b.waitingForATurn(t.Context())
	b.advance(models.AnswerWithin)
	b.rail.Allow(2)
	wait()
	b.want("Failed")
	b.calls(railtest.Calls{Cancels: 1})
}

// Payments are among the calls that a process has under way, so that none waits, once it has looked, for a connection that rows have.
func TestPaymentWaitsForAPermitBeforeItLooks(t *testing.T) {
	b := newTill(t)
	b.pay()
	clock := &stoppedClock{}
	b.job.Now = clock.now
	b.job.Permits.Take(t.Context(), b.job.Permits.Turn(b.site.OrganisationID), 64)
	wait := b.start(t.Context())
	waitForWaiters(b.job.Permits, 1)
	clock.goOn()
	b.workersDie()
	b.job.Permits.Give(b.site.OrganisationID, 64)
	wait()
	b.want("pending")
	b.calls(railtest.Calls{})
}

// A payment may wait for longer than its lease: the worker shows that it lives.
func TestPaymentKeepsItsLeaseWhileItWaitsForATurn(t *testing.T) {
	b := newTill(t)
	b.pay()
	wait := b.waitingForATurn(t.Context())
	lease := func() (until time.Time) {
		if err := b.store.DB().NewRaw("SELECT lease_until FROM payment_intents WHERE id = ?", b.intent.ID).Scan(t.Context(), &until); err != nil {
			t.Fatal(err)
		}
		return until
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for first, began := lease(), time.Now(); !lease().After(first); <-look.C {
		if time.Since(began) > models.RowLease {
			t.Fatal("the lease would have run out by now")
		}
	}
	b.rail.Allow(1)
	wait()
	b.want("Settled")
}

func TestShutdownWhileAPaymentWaitsForATurn(t *testing.T) {
	b := newTill(t)
	b.pay()
	ctx, shutdown := context.WithCancel(t.Context())
	wait := b.waitingForATurn(ctx)
	shutdown()
	wait()
	b.want("pending")
	b.calls(railtest.Calls{})
	b.rail.Allow(1)
	b.run() // at once
	b.want("Settled")
	b.calls(railtest.Calls{Debits: 1})
}
