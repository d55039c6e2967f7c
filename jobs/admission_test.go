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

// manualClock is a clock of the process that stands still until advance. Until then rows are fresh.
type manualClock struct{ ahead atomic.Int64 }

func (c *manualClock) now() time.Time { return time.Unix(0, c.ahead.Load()) }

// advance moves the clock so far that rows and leases must be checked again.
func (c *manualClock) advance() { c.ahead.Add(int64(recheckAfter)) }

// startAwaitingAdmission starts the batch's first task on a rail that admits nothing. It returns
// once the rows wait for admission and are no longer fresh.
func (b *billing) startAwaitingAdmission(ctx context.Context) (wait func()) {
	b.Helper()
	clock := &manualClock{}
	b.job.Now = clock.now
	b.rail.LimitAdmission()
	wait = b.start(ctx)
	b.rail.AwaitAdmitCallers(b.T, 1)
	clock.advance()
	return wait
}

func (b *billing) revoke(customer string) {
	b.Helper()
	if _, err := b.store.RevokeCustomer(b.Context(), b.site.ID, customer); err != nil {
		b.Fatal(err)
	}
}

// wantCalls checks the calls of a row.
func (b *billing) wantCalls(row int, want railtest.Calls) {
	b.Helper()
	if got := b.rail.Calls(b.key(row)); got != want {
		b.Errorf("row %d: calls %+v, want %+v", row, got, want)
	}
}

func TestLinkRevokedWhileWaitingForAdmission(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	wait := b.startAwaitingAdmission(t.Context())
	b.revoke("bob")
	b.rail.Allow(2)
	wait()
	b.want("succeeded", "customerNotActive")
	b.wantMoved(0)
	b.wantCalls(1, railtest.Calls{})
	b.wantPermitsReleased(64, 80)
}

func TestBatchCancelledWhileWaitingForAdmission(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	wait := b.startAwaitingAdmission(t.Context())
	if _, _, err := b.store.CancelBatch(t.Context(), b.site.ID, "batch"); err != nil {
		t.Fatal(err)
	}
	b.rail.Allow(2)
	wait()
	b.want("cancelled", "cancelled")
	b.wantMoved()
	b.wantCalls(0, railtest.Calls{})
}

// No attempt begins in the last half hour before the deadline. A row without a debit call is closed
// without the rail.
func TestLastHalfHourBeginsWhileWaitingForAdmission(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	wait := b.startAwaitingAdmission(t.Context())
	b.advance(models.SettleWithin - models.LastAttemptBefore)
	b.rail.Allow(2)
	wait()
	b.want("timedOut")
	b.wantMoved()
	b.wantCalls(0, railtest.Calls{})
	if _, rows, err := b.store.GetBatch(t.Context(), b.site.ID, "batch"); err != nil || rows[0].Attempts != 0 {
		t.Errorf("%d attempts without a debit call, %v", rows[0].Attempts, err)
	}
}

// A row in doubt waits for admission of its look-up, and then of its debit. If the link is revoked
// meanwhile, the rail is asked to cancel instead, which needs an admission of its own.
func TestLinkRevokedWhileInDoubtAndWaitingForAdmission(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	if _, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows}); err != nil {
		t.Fatal(err)
	}
	b.expireLeases()
	wait := b.startAwaitingAdmission(t.Context())
	b.rail.Allow(1)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Lookups: 1})
	b.rail.AwaitAdmitCallers(t, 1)
	b.revoke("ada")
	b.rail.Allow(2)
	wait()
	b.want("customerNotActive")
	b.wantMoved()
	b.wantCalls(0, railtest.Calls{Lookups: 1, Cancels: 1})
	debits, others := b.rail.Admitted(b.site.OrganisationID), b.rail.Admitted(models.OrganisationID{})
	if debits != 1 || others != 2 {
		t.Errorf("%d admissions for the debit, %d for the look-up and the cancellation", debits, others)
	}
}

func TestLeaseLostWhileWaitingForAdmission(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	wait := b.startAwaitingAdmission(t.Context())
	b.expireLeases()
	b.rail.Allow(1)
	wait()
	b.want("inProgress")
	b.wantCalls(0, railtest.Calls{})
	b.rail.Allow(2)
	b.run()
	b.want("succeeded")
	b.wantMoved(0)
	b.wantCalls(0, railtest.Calls{Debits: 1, Lookups: 1})
	b.wantPermitsReleased(64, 80)
}

func TestShutdownWhileWaitingForAdmission(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob", "cyd")
	ctx, shutdown := context.WithCancel(t.Context())
	wait := b.startAwaitingAdmission(ctx)
	shutdown()
	wait()
	b.want("pending", "pending", "pending")
	b.wantCalls(0, railtest.Calls{})
	b.wantPermitsReleased(64, 80)
	b.rail.Allow(3)
	b.run() // at once
	b.want("succeeded", "succeeded", "succeeded")
	b.wantMoved(0, 1, 2)
}

// Rows that wait for admission hold no call permits. An organisation with many rows does not delay
// one with few.
func TestWaitingForAdmissionLeavesPermitsToOthers(t *testing.T) {
	b := newBilling(t)
	b.job.Permits = NewPermits(8) // and 10 claim permits
	b.submit(slices.Repeat([]string{"ada"}, 60)...)
	wait := b.startAwaitingAdmission(t.Context())
	small := modelstest.Site(t, b.store)
	modelstest.Customer(t, b.store, small.ID, "bob", models.BehaviourPays)
	task := modelstest.Submit(t, b.store, modelstest.Batch(small, "small", "bob")).Tasks[0]
	done := make(chan error, 1)
	go func() {
		done <- b.job.Run(t.Context(), models.Task{
			ID: task, Kind: models.TaskDebitRows, OrganisationID: small.OrganisationID, Rows: 1,
		})
	}()
	b.rail.Allow(1)
	b.rail.AwaitCalls(t, b.key(0), railtest.Calls{Debits: 1})
	b.rail.AwaitAdmitCallers(t, 2)
	claimed := slices.DeleteFunc(b.outcomes(), func(s string) bool { return s == "pending" })
	if n := len(claimed); n > 11 {
		t.Errorf("%d rows are claimed, want at most the 10 claim permits and the one that was debited", n)
	}
	b.rail.Allow(60)
	if err := <-done; err != nil {
		t.Error(err)
	}
	wait()
	b.want(slices.Repeat([]string{"succeeded"}, 60)...)
	b.wantPermitsReleased(8, 10)
	modelstest.Audit(t, b.store)
}

// startAwaitingAdmission starts the payment on a rail that admits nothing. It returns once the
// payment waits for admission and its lease must be checked again.
func (b *till) startAwaitingAdmission(ctx context.Context) (wait func()) {
	b.Helper()
	clock := &manualClock{}
	b.job.Now = clock.now
	b.rail.LimitAdmission()
	wait = b.start(ctx)
	b.rail.AwaitAdmitCallers(b.T, 1)
	clock.advance()
	return wait
}

func TestPaymentLeaseLostWhileWaitingForAdmission(t *testing.T) {
	b := newTill(t)
	b.pay()
	wait := b.startAwaitingAdmission(t.Context())
	b.expireLeases()
	b.rail.Allow(1)
	wait()
	b.want("pending")
	b.wantCalls(railtest.Calls{})
	b.rail.Allow(2)
	b.run()
	b.want("Settled")
	b.wantCalls(railtest.Calls{Debits: 1, Lookups: 1})
	debits, others := b.rail.Admitted(b.site.OrganisationID), b.rail.Admitted(models.OrganisationID{})
	if debits != 2 || others != 1 {
		t.Errorf("%d admissions for debits, %d for the look-up", debits, others)
	}
}

// A customer who has waited for a minute is not charged any more.
func TestPaymentTimesOutWhileWaitingForAdmission(t *testing.T) {
	b := newTill(t)
	b.pay()
	wait := b.startAwaitingAdmission(t.Context())
	b.advance(models.AnswerWithin)
	b.rail.Allow(2)
	wait()
	b.want("Failed")
	b.wantCalls(railtest.Calls{Cancels: 1})
}

// A payment needs a call permit, and checks its lease only after it has acquired the permit.
func TestPaymentWaitsForAPermitBeforeItChecksItsLease(t *testing.T) {
	b := newTill(t)
	b.pay()
	clock := &manualClock{}
	b.job.Now = clock.now
	b.job.Permits.AcquireCalls(t.Context(), b.job.Permits.Ticket(b.site.OrganisationID), 64)
	wait := b.start(t.Context())
	awaitWaiters(t, b.job.Permits, 1)
	clock.advance()
	b.expireLeases()
	b.job.Permits.ReleaseCalls(b.site.OrganisationID, 64)
	wait()
	b.want("pending")
	b.wantCalls(railtest.Calls{})
}

// A payment may wait for longer than its lease: heartbeats extend the lease.
func TestPaymentKeepsItsLeaseWhileWaitingForAdmission(t *testing.T) {
	b := newTill(t)
	b.pay()
	wait := b.startAwaitingAdmission(t.Context())
	lease := func() (until time.Time) {
		query := b.store.DB().NewRaw("SELECT lease_until FROM payment_intents WHERE id = ?", b.intent.ID)
		if err := query.Scan(t.Context(), &until); err != nil {
			t.Fatal(err)
		}
		return until
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for first, began := lease(), time.Now(); !lease().After(first); <-poll.C {
		if time.Since(began) > models.RowLease {
			t.Fatal("the lease was not extended before its end")
		}
	}
	b.rail.Allow(1)
	wait()
	b.want("Settled")
}

func TestShutdownWhileAPaymentWaitsForAdmission(t *testing.T) {
	b := newTill(t)
	b.pay()
	ctx, shutdown := context.WithCancel(t.Context())
	wait := b.startAwaitingAdmission(ctx)
	shutdown()
	wait()
	b.want("pending")
	b.wantCalls(railtest.Calls{})
	b.rail.Allow(1)
	b.run() // at once
	b.want("Settled")
	b.wantCalls(railtest.Calls{Debits: 1})
}
