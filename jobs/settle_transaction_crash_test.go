package jobs

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestPaymentWorkerDiesBeforeTheRailCall(t *testing.T) {
	b := newTill(t)
	b.pay()
	if _, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken()); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("pending") // the lease has not expired
	b.wantCalls(railtest.Calls{})
	b.expireLeases()
	b.run()
	b.want("Settled")
	b.wantCalls(railtest.Calls{Debits: 1, Lookups: 1})
}

func TestPaymentWorkerDiesDuringTheRailCall(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.Script(b.key(), railtest.Hang, railtest.Succeed)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(), railtest.Calls{Debits: 1})
	b.expireLeases()
	b.rail.SetDefault(railtest.Succeed)
	b.run()
	b.want("Settled")
	b.rail.Release(b.key()) // the frozen worker's debit arrives under the same key
	wait()
	b.want("Settled")
}

// claimed starts a payment and returns a run that has claimed it. The rail answers its first call
// with the step.
func (b *till) claimed(step railtest.Step) *settlement {
	b.Helper()
	b.pay()
	claimed, err := b.store.ClaimTransaction(b.Context(), b.started.Task, models.NewLeaseToken())
	if err != nil {
		b.Fatal(err)
	}
	b.rail.Script(b.key(), step)
	return &settlement{job: b.job, transaction: claimed, leaseCheckedAt: time.Now()}
}

func TestPaymentWorkerDiesBeforeTheRecord(t *testing.T) {
	for status, step := range map[string]railtest.Step{
		"Settled": railtest.Succeed, "Declined": railtest.Refuse(rail.InsufficientFunds),
	} {
		t.Run(status, func(t *testing.T) {
			b := newTill(t)
			b.claimed(step).settle(t.Context()) // the result is not recorded
			b.expireLeases()
			b.run()
			b.want(status)
			b.wantCalls(railtest.Calls{Debits: 1, Lookups: 1})
		})
	}
}

// The result is recorded over a new connection if the open ones have frozen. The customer at the
// till does not wait for another run.
func TestConnectionsFreezeBeforeThePaymentIsRecorded(t *testing.T) {
	b := newTill(t)
	var line *modelstest.Line
	b.store, b.job.Store, line = wiredStores(t)
	b.site = modelstest.Site(t, b.store)
	b.pay()
	b.rail.Script(b.key(), railtest.Hang, railtest.Succeed)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(), railtest.Calls{Debits: 1})
	line.FreezeOpen()
	b.rail.Release(b.key())
	wait()
	b.want("Settled")
	b.wantCalls(railtest.Calls{Debits: 1})
}

// A result that is recorded twice counts once: the answer to the first statement may be lost.
func TestPaymentIsRecordedTwice(t *testing.T) {
	for name, step := range map[string]railtest.Step{
		"Settled": railtest.Succeed, "Declined": railtest.Refuse(rail.InsufficientFunds),
		"pending": railtest.LoseRequest,
	} {
		t.Run(name, func(t *testing.T) {
			b := newTill(t)
			b.rail.SetDefault(step)
			run := b.claimed(step)
			result := run.settle(t.Context())
			for i := range 2 {
				done, err := b.store.FinishTransaction(t.Context(), run.transaction, result)
				if ended := i == 0 && name != "pending"; err != nil || done.Ended != ended {
					t.Errorf("record %d: %+v, %v", i, done, err)
				}
			}
			b.want(name)
			if alerts, err := b.store.OpenAlerts(t.Context(), 10); err != nil || len(alerts) != 0 {
				t.Errorf("alerts %+v, %v", alerts, err)
			}
		})
	}
}

func TestShutdownDuringAPayment(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.Script(b.key(), railtest.Hang, railtest.Succeed)
	ctx, shutdown := context.WithCancel(t.Context())
	wait := b.start(ctx)
	b.rail.AwaitCalls(t, b.key(), railtest.Calls{Debits: 1})
	shutdown()
	b.rail.Release(b.key()) // the run waits for calls in flight
	wait()
	b.want("Settled")
}

func TestShutdownBeforeAPayment(t *testing.T) {
	b := newTill(t)
	b.pay()
	ctx, shutdown := context.WithCancel(t.Context())
	shutdown()
	b.start(ctx)()
	b.want("pending")
	b.wantCalls(railtest.Calls{})
	claimed, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken())
	if err != nil || !claimed.Claimed || claimed.InDoubt {
		t.Errorf("another worker's claim: %+v, %v", claimed, err)
	}
	run := &settlement{job: b.job, transaction: claimed, leaseCheckedAt: time.Now()} // a shutdown after the claim
	if err := run.record(t.Context(), run.settle(ctx)); err != nil {
		t.Fatal(err)
	}
	b.wantCalls(railtest.Calls{})
	b.run() // at once
	b.want("Settled")
}

func TestLeaseLostBeforeADebit(t *testing.T) {
	b := newTill(t)
	b.pay()
	began, calls := time.Now(), atomic.Int64{}
	b.job.Now = func() time.Time { // advances with each call, so that the lease must be checked
		return began.Add(time.Duration(calls.Add(1)) * 2 * recheckAfter)
	}
	claimed, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken())
	if err != nil {
		t.Fatal(err)
	}
	b.expireLeases()
	run := &settlement{job: b.job, transaction: claimed, leaseCheckedAt: began}
	if err := run.record(t.Context(), run.settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	b.wantCalls(railtest.Calls{})
	b.run()
	b.want("Settled")
	b.wantCalls(railtest.Calls{Debits: 1, Lookups: 1})
}

// A claim whose answer was lost delays the payment only until the claim is abandoned.
func TestTransactionClaimOfUnknownFateIsAbandoned(t *testing.T) {
	b := newTill(t)
	b.pay()
	lease := models.NewLeaseToken()
	if _, err := b.store.ClaimTransaction(t.Context(), b.started.Task, lease); err != nil {
		t.Fatal(err)
	}
	for _, l := range []models.LeaseToken{models.NewLeaseToken(), lease} {
		b.run()
		b.want("pending") // the claim of another lease goes on
		if err := b.store.AbandonTransaction(t.Context(), b.started.Task, l); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	b.want("Settled")
	b.wantCalls(railtest.Calls{Debits: 1, Lookups: 1})
}
