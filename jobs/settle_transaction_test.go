package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// till is a Site whose customers pay over a scripted rail, with the service's clock standing still.
type till struct {
	*testing.T
	store   *models.Store
	site    models.Site
	rail    *railtest.Scripted
	job     *SettleTransaction
	told    []models.TaskID // that Notify was told of
	intent  models.PaymentIntent
	started models.StartedTransaction
}

const price = 1000

func newTill(t *testing.T) *till {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	b := &till{T: t, store: store, site: modelstest.Site(t, store), rail: railtest.NewScripted()}
	t.Cleanup(func() {
		wantTurns(t, b.rail)
		wantAllBack(t, b.job.Permits, 64, 80)
	})
	b.job = &SettleTransaction{
		Store: store, Rail: b.rail, Permits: NewPermits(64), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Notify: func(tasks []models.TaskID) { b.told = append(b.told, tasks...) },
	}
	return b
}

// pay lets a customer begin to pay a new intent.
func (b *till) pay(discounts ...models.Discount) {
	b.Helper()
	b.intent = modelstest.Intent(b, b.store, b.site.ID, price, price)
	b.started = modelstest.Pay(b, b.store, b.intent, models.Party{CustomerID: "ada", AgreementID: "agreement"}, discounts...)
}

func (b *till) key() string { return models.PaymentRailKey(b.intent.ID) }

func (b *till) run() {
	b.Helper()
	if err := b.job.Run(b.Context(), models.Task{ID: b.started.Task}); err != nil {
		b.Fatalf("run: %v", err)
	}
}

// start runs the task in the background; the returned function waits for its end.
func (b *till) start(ctx context.Context) (wait func()) {
	done := make(chan error, 1)
	go func() { done <- b.job.Run(ctx, models.Task{ID: b.started.Task}) }()
	return func() {
		b.Helper()
		if err := <-done; err != nil {
			b.Errorf("run: %v", err)
		}
	}
}

func (b *till) workersDie() {
	b.Helper()
	if _, err := b.store.DB().ExecContext(b.Context(), "UPDATE payment_intents SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL"); err != nil {
		b.Fatal(err)
	}
}

func (b *till) advance(by time.Duration) { modelstest.AdvanceClock(b, b.store, by) }

// want checks how the intent stands, "pending" or a final status, and that money moved if it is settled, once, and not
// otherwise, and that the books are right.
func (b *till) want(status string) {
	b.Helper()
	is, err := b.store.PaymentIntent(b.Context(), b.site.ID, b.intent.ID)
	if err != nil {
		b.Fatal(err)
	}
	got, moved := string(is.State), b.rail.Amounts()[b.key()]
	if is.Status != "" {
		got = string(is.Status)
	}
	if got != status {
		b.Errorf("the intent is %s, want %s", got, status)
	}
	if paid, ok := is.AmountPaid(); ok != (status == "Settled") || ok && paid != moved || !ok && moved != 0 && is.State == models.IntentFinal {
		b.Errorf("%s with %d paid, and %d moved", got, paid, moved)
	}
	if n := len(b.rail.Moved()); n > 1 {
		b.Errorf("%d debits for one payment", n)
	}
	modelstest.Audit(b, b.store)
}

func (b *till) calls(want railtest.Calls) {
	b.Helper()
	if got := b.rail.Calls(b.key()); got != want {
		b.Errorf("calls %+v, want %+v", got, want)
	}
}

func TestEveryEnding(t *testing.T) {
	for name, tt := range map[string]struct {
		step   railtest.Step
		status string
		reason models.RowOutcome
	}{
		"pays":         {railtest.Succeed, "Settled", ""},
		"insufficient": {railtest.Refuse(rail.InsufficientFunds), "Declined", models.OutcomeInsufficientFunds},
		"unavailable":  {railtest.Refuse(rail.AccountUnavailable), "Declined", models.OutcomeAccountUnavailable},
		"limited":      {railtest.Refuse(rail.LimitExceeded), "Declined", models.OutcomeLimitExceeded},
		"declines":     {railtest.Refuse(rail.DeclinedByCustomer), "Declined", models.OutcomeDeclinedByCustomer},
		"refused":      {railtest.Refuse(rail.Declined), "Declined", models.OutcomeDeclined},
		"answer lost":  {railtest.LoseAnswer, "Settled", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTill(t)
			b.pay()
			b.rail.Script(b.key(), tt.step)
			b.run()
			b.want(tt.status)
			is, err := b.store.PaymentIntent(t.Context(), b.site.ID, b.intent.ID)
			if err != nil || is.StatusReason != tt.reason {
				t.Errorf("reason %s, %v", is.StatusReason, err)
			}
			b.run() // a task that comes late finds nothing to do
			b.want(tt.status)
		})
	}
}

func TestDiscountsAreNotCharged(t *testing.T) {
	b := newTill(t)
	b.pay(models.Discount{LineItem: 0, Amount: 1, Reason: "r"}, models.Discount{LineItem: 0, Amount: 998, Reason: "r"})
	b.run()
	b.want("Settled")
	if got := b.rail.Amounts()[b.key()]; got != 1 {
		t.Errorf("charged %d", got)
	}
}

func TestNothingLeftToCharge(t *testing.T) {
	b := newTill(t)
	b.pay(models.Discount{LineItem: 0, Amount: price, Reason: "free"})
	b.rail.SetDown(true) // nobody asks it
	b.run()
	b.want("Settled")
	b.calls(railtest.Calls{})
}

func TestPartnerIsToldAtOnce(t *testing.T) {
	b := newTill(t)
	if _, err := b.store.DB().ExecContext(t.Context(), `
INSERT INTO webhook_endpoints (organisation_id, site_id, url, created_at, updated_at, width)
VALUES (?, '00000000-0000-0000-0000-000000000000', 'https://partner.example', 1, 1, 1)`, b.site.OrganisationID); err != nil {
		t.Fatal(err)
	}
	b.pay()
	b.run()
	b.want("Settled")
	if len(b.told) != 1 {
		t.Fatalf("told of %d tasks", len(b.told))
	}
	tasks, err := b.store.ClaimTasks(t.Context(), b.told, models.Dispatch{InFlight: 10}, models.Dispatch{InFlight: 10, Limit: 10})
	if err != nil || len(tasks) != 1 || tasks[0].Kind != models.TaskDeliverWebhook {
		t.Errorf("tasks %+v, %v", tasks, err)
	}
}

func TestPaymentWhileTheBankIsDown(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.Script(b.key(), railtest.Unavailable, railtest.Unavailable)
	b.run()
	b.want("pending")
	b.run() // not due yet
	b.calls(railtest.Calls{Debits: 1})
	b.advance(2 * time.Second)
	b.run()
	b.want("pending")
	b.advance(2 * time.Second)
	b.run()
	b.want("Settled")
	b.calls(railtest.Calls{Debits: 3})
}

// A rail that cannot answer is retried for 60 seconds, and then closed: only that the rail confirms is a failure.
func TestPaymentWhileTheRailIsDown(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.SetDown(true)
	tries := 0
	for at := time.Duration(0); at < models.AnswerWithin; at += time.Second {
		b.run()
		b.want("pending")
		b.advance(time.Second)
		tries = b.rail.Calls(b.key()).Debits
	}
	if tries < 12 || tries > 20 {
		t.Errorf("%d tries in a minute", tries)
	}
	b.advance(7 * time.Second)
	b.run()
	b.want("pending")
	b.calls(railtest.Calls{Debits: tries, Cancels: 1})
	b.advance(24 * time.Hour)
	b.run()
	b.want("pending")
	b.rail.SetDown(false)
	b.advance(time.Minute)
	b.run()
	b.want("Failed")
	b.calls(railtest.Calls{Debits: tries, Cancels: 3})
}

// The time is over while a debit is on its way: if it arrives before the cancellation it counts.
func TestTimeIsOverAgainstALateDebit(t *testing.T) {
	for status, arrives := range map[string]bool{"Settled": true, "Failed": false} {
		t.Run(status, func(t *testing.T) {
			b := newTill(t)
			b.pay()
			b.rail.Script(b.key(), railtest.Hang, railtest.Succeed)
			wait := b.start(t.Context())
			b.rail.AwaitCalls(t, b.key(), railtest.Calls{Debits: 1})
			b.workersDie() // frozen rather than dead
			b.advance(models.AnswerWithin)
			if arrives {
				b.rail.Release(b.key())
				wait()
			}
			b.run()
			b.want(status)
			b.rail.Release(b.key())
			if !arrives {
				wait()
			}
			b.want(status)
		})
	}
}

func TestRequestLost(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.Script(b.key(), railtest.LoseRequest)
	b.run()
	b.want("pending")
	b.advance(2 * time.Second)
	b.run()
	b.want("Settled")
	b.calls(railtest.Calls{Debits: 2, Lookups: 2})
}

func TestRequestLostUntilTheTimeIsOver(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.Script(b.key(), railtest.LoseRequest)
	b.run()
	b.advance(models.AnswerWithin)
	b.run()
	b.want("Failed")
	b.calls(railtest.Calls{Debits: 1, Lookups: 1, Cancels: 1})
}

func TestSettlerDiesBeforeTheRailCall(t *testing.T) {
	b := newTill(t)
	b.pay()
	if _, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken()); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.want("pending") // the lease is not over
	b.calls(railtest.Calls{})
	b.workersDie()
	b.run()
	b.want("Settled")
	b.calls(railtest.Calls{Debits: 1, Lookups: 1})
}

func TestSettlerDiesDuringTheRailCall(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.Script(b.key(), railtest.Hang, railtest.Succeed)
	wait := b.start(t.Context())
	b.rail.AwaitCalls(t, b.key(), railtest.Calls{Debits: 1})
	b.workersDie()
	b.rail.Otherwise(railtest.Succeed)
	b.run()
	b.want("Settled")
	b.rail.Release(b.key()) // the frozen worker's debit arrives at last, under the same key
	wait()
	b.want("Settled")
}

func TestSettlerDiesBeforeTheRecord(t *testing.T) {
	for status, step := range map[string]railtest.Step{"Settled": railtest.Succeed, "Declined": railtest.Refuse(rail.InsufficientFunds)} {
		t.Run(status, func(t *testing.T) {
			b := newTill(t)
			b.pay()
			claimed, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken())
			if err != nil {
				t.Fatal(err)
			}
			b.rail.Script(b.key(), step)
			dead := &settlement{job: b.job, transaction: claimed, heldAt: time.Now()}
			dead.settle(t.Context()) // and nobody writes down what it says
			b.workersDie()
			b.run()
			b.want(status)
			b.calls(railtest.Calls{Debits: 1, Lookups: 1})
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
	b.rail.Release(b.key()) // a call under way is waited for
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
	b.calls(railtest.Calls{})
	claimed, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken())
	if err != nil || !claimed.Held || claimed.InDoubt {
		t.Errorf("another worker's claim: %+v, %v", claimed, err)
	}
	run := &settlement{job: b.job, transaction: claimed, heldAt: time.Now()} // one that had claimed it already
	if err := run.record(t.Context(), run.settle(ctx)); err != nil {
		t.Fatal(err)
	}
	b.calls(railtest.Calls{})
	b.run() // at once
	b.want("Settled")
}

func TestLeaseLostBeforeADebit(t *testing.T) {
	b := newTill(t)
	b.pay()
	began, looks := time.Now(), atomic.Int64{}
	b.job.Now = func() time.Time { // every look at the clock finds the lease no longer fresh
		return began.Add(time.Duration(looks.Add(1)) * 2 * freshFor)
	}
	claimed, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken())
	if err != nil {
		t.Fatal(err)
	}
	b.workersDie()
	run := &settlement{job: b.job, transaction: claimed, heldAt: began}
	if err := run.record(t.Context(), run.settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	b.calls(railtest.Calls{})
	b.run()
	b.want("Settled")
	b.calls(railtest.Calls{Debits: 1, Lookups: 1})
}

// TestRandomPayments lets a rail do whatever rails do, and workers die, until the payment has come to its end: money has
// moved if and only if it is settled.
func TestRandomPayments(t *testing.T) {
	b := newTill(t)
	steps := map[string]railtest.Step{
		"succeed": railtest.Succeed, "refuse": railtest.Refuse(rail.LimitExceeded), "unavailable": railtest.Unavailable,
		"lose the answer": railtest.LoseAnswer, "lose the request": railtest.LoseRequest,
	}
	names := []string{"succeed", "refuse", "unavailable", "lose the answer", "lose the request"}
	rapid.Check(t, func(rt *rapid.T) {
		b.rail = railtest.NewScripted()
		b.job.Rail = b.rail
		b.pay(models.Discount{LineItem: 0, Amount: models.Amount(rapid.IntRange(1, price-1).Draw(rt, "off")), Reason: "r"})
		var script []railtest.Step
		for range rapid.IntRange(0, 4).Draw(rt, "steps") {
			script = append(script, steps[rapid.SampledFrom(names).Draw(rt, "step")])
		}
		b.rail.Script(b.key(), script...)
		for n := 0; b.state() == models.IntentPending; n++ {
			if n > 100 {
				rt.Fatal("the payment does not end")
			}
			b.rail.SetDown(n < 20 && rapid.Bool().Draw(rt, "down"))
			if rapid.Bool().Draw(rt, "dies") {
				b.dies(rt)
			} else if err := b.job.Run(rt.Context(), models.Task{ID: b.started.Task}); err != nil {
				rt.Fatal(err)
			}
			b.advance(time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds")) * time.Second)
		}
		b.rail.SetDown(false)
		is, err := b.store.PaymentIntent(rt.Context(), b.site.ID, b.intent.ID)
		moved, debits := b.rail.Amounts()[b.key()], len(b.rail.Moved())
		settled := is.Status == models.TransactionSettled
		if err != nil || settled != (debits == 1) || debits > 1 || settled && moved != is.Transaction.Charge {
			rt.Fatalf("%s with %d debits of %d, %v", is.Status, debits, moved, err)
		}
		if events := modelstest.PushedStatuses(t, b.store, is.ID); fmt.Sprint(events) != fmt.Sprint([]models.TransactionStatus{is.Status}) {
			rt.Fatalf("%s, and the events say %v", is.Status, events)
		}
	})
	modelstest.Audit(t, b.store)
}

func (b *till) state() models.IntentState {
	b.Helper()
	is, err := b.store.PaymentIntent(b.Context(), b.site.ID, b.intent.ID)
	if err != nil {
		b.Fatal(err)
	}
	return is.State
}

// dies is a run whose worker dies before it has written anything down.
func (b *till) dies(t *rapid.T) {
	claimed, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken())
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Held {
		dead := &settlement{job: b.job, transaction: claimed, heldAt: time.Now()}
		dead.settle(t.Context())
		b.workersDie()
	}
}

// The same over the sandbox's own rail, whose list must agree with the books.
func TestPaymentsOverTheSandbox(t *testing.T) {
	b := newTill(t)
	b.job.Rail = rail.NewSandbox(b.store)
	for behaviour, want := range map[models.Behaviour]models.TransactionStatus{
		models.BehaviourPays: models.TransactionSettled, models.BehaviourInsufficientFunds: models.TransactionDeclined,
		models.BehaviourAccountUnavailable: models.TransactionDeclined, models.BehaviourLimitExceeded: models.TransactionDeclined,
		models.BehaviourDeclines: models.TransactionDeclined, models.BehaviourSlow: models.TransactionSettled,
		models.BehaviourBankDown: models.TransactionSettled, models.BehaviourAnswerLost: models.TransactionSettled,
	} {
		b.intent = modelstest.Intent(t, b.store, b.site.ID, price, price)
		b.started = modelstest.Pay(t, b.store, b.intent, modelstest.Payer(t, b.store, behaviour))
		b.run()
		for range 12 {
			if b.state() == models.IntentFinal {
				break
			}
			b.advance(6 * time.Second)
			b.run()
		}
		is, err := b.store.PaymentIntent(t.Context(), b.site.ID, b.intent.ID)
		if err != nil || is.Status != want {
			t.Errorf("%s: %s, %v", behaviour, is.Status, err)
		}
	}
	modelstest.AuditRail(t, b.store)
}
