package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// till is a Site with one checkout payment on a scripted rail. The service's clock stands still.
type till struct {
	*testing.T
	store    *models.Store
	site     models.Site
	rail     *railtest.Scripted
	job      *SettleTransaction
	notified []models.TaskID // by Notify
	intent   models.PaymentIntent
	started  models.StartedTransaction
}

const price = 1000

func newTill(t *testing.T) *till {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	b := &till{T: t, store: store, site: modelstest.Site(t, store), rail: railtest.NewScripted()}
	t.Cleanup(func() {
		wantAdmissions(t, b.rail)
		wantPermitsReleased(t, b.job.Permits, 64, 80)
	})
	b.job = &SettleTransaction{
		Store: store, Rail: b.rail, Permits: NewPermits(64), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Notify: func(tasks []models.TaskID) { b.notified = append(b.notified, tasks...) },
	}
	return b
}

// pay creates an intent and starts its payment.
func (b *till) pay(discounts ...models.Discount) {
	b.Helper()
	b.intent = modelstest.Intent(b, b.store, b.site.ID, price, price)
	payer := models.Party{CustomerID: "ada", AgreementID: "agreement"}
	b.started = modelstest.Pay(b, b.store, b.intent, payer, discounts...)
}

func (b *till) key() string { return models.PaymentRailKey(b.intent.ID) }

func (b *till) run() {
	b.Helper()
	if err := b.job.Run(b.Context(), models.Task{ID: b.started.Task}); err != nil {
		b.Fatalf("run: %v", err)
	}
}

// start runs the task in the background. The returned function waits for its end.
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

func (b *till) expireLeases() {
	b.Helper()
	expire := "UPDATE payment_intents SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL"
	if _, err := b.store.DB().ExecContext(b.Context(), expire); err != nil {
		b.Fatal(err)
	}
}

func (b *till) advance(by time.Duration) { modelstest.AdvanceClock(b, b.store, by) }

// want checks that the intent is "pending" or has the final status, that money moved once if it is
// settled and not otherwise, and that the books agree.
func (b *till) want(status string) {
	b.Helper()
	intent, err := b.store.PaymentIntent(b.Context(), b.site.ID, b.intent.ID)
	if err != nil {
		b.Fatal(err)
	}
	got, moved := string(intent.State), b.rail.Amounts()[b.key()]
	if intent.Status != "" {
		got = string(intent.Status)
	}
	if got != status {
		b.Errorf("the intent is %s, want %s", got, status)
	}
	paid, ok := intent.AmountPaid()
	if ok != (status == "Settled") || ok && paid != moved || !ok && moved != 0 && intent.State == models.IntentFinal {
		b.Errorf("%s with %d paid, and %d moved", got, paid, moved)
	}
	if n := len(b.rail.Moved()); n > 1 {
		b.Errorf("%d debits for one payment", n)
	}
	modelstest.Audit(b, b.store)
}

// wantCalls checks the calls of the payment.
func (b *till) wantCalls(want railtest.Calls) {
	b.Helper()
	if got := b.rail.Calls(b.key()); got != want {
		b.Errorf("calls %+v, want %+v", got, want)
	}
}

func TestEveryFinalStatus(t *testing.T) {
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
			intent, err := b.store.PaymentIntent(t.Context(), b.site.ID, b.intent.ID)
			if err != nil || intent.StatusReason != tt.reason {
				t.Errorf("reason %s, %v", intent.StatusReason, err)
			}
			b.run() // a late task has no effect
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
	b.rail.SetDown(true) // the rail is not called
	b.run()
	b.want("Settled")
	b.wantCalls(railtest.Calls{})
	var attempts int
	query := b.store.DB().NewRaw("SELECT attempts FROM payment_intents WHERE id = ?", b.intent.ID)
	if err := query.Scan(t.Context(), &attempts); err != nil || attempts != 0 {
		t.Errorf("%d attempts without a debit call, %v", attempts, err)
	}
}

func TestWebhookTaskIsNotified(t *testing.T) {
	b := newTill(t)
	if _, err := b.store.DB().ExecContext(t.Context(), `
INSERT INTO webhook_endpoints (organisation_id, site_id, url, created_at, updated_at, width)
VALUES (?, '00000000-0000-0000-0000-000000000000', 'https://partner.example', 1, 1, 1)`,
		b.site.OrganisationID); err != nil {
		t.Fatal(err)
	}
	b.pay()
	b.run()
	b.want("Settled")
	if len(b.notified) != 1 {
		t.Fatalf("notified of %d tasks", len(b.notified))
	}
	bounds := models.Dispatch{InFlight: 10, Limit: 10}
	tasks, err := b.store.ClaimTasks(t.Context(), b.notified, bounds, bounds)
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
	b.wantCalls(railtest.Calls{Debits: 1})
	b.advance(2 * time.Second)
	b.run()
	b.want("pending")
	b.advance(2 * time.Second)
	b.run()
	b.want("Settled")
	b.wantCalls(railtest.Calls{Debits: 3})
}

// A payment is retried for 60 seconds while the rail is down, and then closed. It is Failed only
// once the rail confirms the cancellation.
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
	b.wantCalls(railtest.Calls{Debits: tries, Cancels: 1})
	b.advance(24 * time.Hour)
	b.run()
	b.want("pending")
	b.rail.SetDown(false)
	b.advance(time.Minute)
	b.run()
	b.want("Failed")
	b.wantCalls(railtest.Calls{Debits: tries, Cancels: 3})
}

// The time for attempts ends while a debit is in flight. The debit counts if it arrives before the
// cancellation.
func TestTimeoutAgainstALateDebit(t *testing.T) {
	for status, arrives := range map[string]bool{"Settled": true, "Failed": false} {
		t.Run(status, func(t *testing.T) {
			b := newTill(t)
			b.pay()
			b.rail.Script(b.key(), railtest.Hang, railtest.Succeed)
			wait := b.start(t.Context())
			b.rail.AwaitCalls(t, b.key(), railtest.Calls{Debits: 1})
			b.expireLeases() // the worker is frozen
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
	b.wantCalls(railtest.Calls{Debits: 2, Lookups: 2})
}

func TestRequestLostUntilTheTimeout(t *testing.T) {
	b := newTill(t)
	b.pay()
	b.rail.Script(b.key(), railtest.LoseRequest)
	b.run()
	b.advance(models.AnswerWithin)
	b.run()
	b.want("Failed")
	b.wantCalls(railtest.Calls{Debits: 1, Lookups: 1, Cancels: 1})
}

// The rail answers at random and workers die until the payment is final. Money has moved if and
// only if it is settled.
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
		discount := models.Amount(rapid.IntRange(1, price-1).Draw(rt, "discount"))
		b.pay(models.Discount{LineItem: 0, Amount: discount, Reason: "r"})
		var script []railtest.Step
		for range rapid.IntRange(0, 4).Draw(rt, "steps") {
			script = append(script, steps[rapid.SampledFrom(names).Draw(rt, "step")])
		}
		b.rail.Script(b.key(), script...)
		for n := 0; b.state() == models.IntentPending; n++ {
			if n > 100 {
				rt.Fatal("the payment is not final after 100 runs")
			}
			b.rail.SetDown(n < 20 && rapid.Bool().Draw(rt, "down"))
			if rapid.Bool().Draw(rt, "dies") {
				b.runAndDie(rt)
			} else if err := b.job.Run(rt.Context(), models.Task{ID: b.started.Task}); err != nil {
				rt.Fatal(err)
			}
			b.advance(time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds")) * time.Second)
		}
		b.rail.SetDown(false)
		intent, err := b.store.PaymentIntent(rt.Context(), b.site.ID, b.intent.ID)
		moved, debits := b.rail.Amounts()[b.key()], len(b.rail.Moved())
		settled := intent.Status == models.TransactionSettled
		if err != nil || settled != (debits == 1) || debits > 1 || settled && moved != intent.Transaction.Charge {
			rt.Fatalf("%s with %d debits of %d, %v", intent.Status, debits, moved, err)
		}
		pushed := modelstest.PushedStatuses(t, b.store, intent.ID)
		if fmt.Sprint(pushed) != fmt.Sprint([]models.TransactionStatus{intent.Status}) {
			rt.Fatalf("%s, and the events have %v", intent.Status, pushed)
		}
	})
	modelstest.Audit(t, b.store)
}

func (b *till) state() models.IntentState {
	b.Helper()
	intent, err := b.store.PaymentIntent(b.Context(), b.site.ID, b.intent.ID)
	if err != nil {
		b.Fatal(err)
	}
	return intent.State
}

// runAndDie is a run whose worker dies before its record.
func (b *till) runAndDie(t *rapid.T) {
	claimed, err := b.store.ClaimTransaction(t.Context(), b.started.Task, models.NewLeaseToken())
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Claimed {
		dead := &settlement{job: b.job, transaction: claimed, leaseCheckedAt: time.Now()}
		dead.settle(t.Context())
		b.expireLeases()
	}
}

// Payments on the sandbox rail reach the status of the payer's behaviour, and the rail's list
// agrees with the books.
func TestPaymentsOnTheSandbox(t *testing.T) {
	b := newTill(t)
	b.job.Rail = rail.NewSandbox(b.store)
	for behaviour, want := range map[models.Behaviour]models.TransactionStatus{
		models.BehaviourPays: models.TransactionSettled, models.BehaviourInsufficientFunds: models.TransactionDeclined,
		models.BehaviourAccountUnavailable: models.TransactionDeclined,
		models.BehaviourLimitExceeded:      models.TransactionDeclined,
		models.BehaviourDeclines:           models.TransactionDeclined, models.BehaviourSlow: models.TransactionSettled,
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
		intent, err := b.store.PaymentIntent(t.Context(), b.site.ID, b.intent.ID)
		if err != nil || intent.Status != want {
			t.Errorf("%s: %s, %v", behaviour, intent.Status, err)
		}
	}
	modelstest.AuditRail(t, b.store)
}
