package models_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func (c *checkout) claim(task models.TaskID) models.ClaimedTransaction {
	c.Helper()
	t, err := c.store.ClaimTransaction(c.Context(), task, models.NewLeaseToken())
	if err != nil {
		c.Fatal(err)
	}
	return t
}

func (c *checkout) finish(t models.ClaimedTransaction, r models.TransactionResult) models.FinishedTransaction {
	c.Helper()
	done, err := c.store.FinishTransaction(c.Context(), t, r)
	if err != nil {
		c.Fatal(err)
	}
	return done
}

// workersDie simulates that all workers have been dead for longer than their leases.
func (c *checkout) workersDie() {
	c.Helper()
	if _, err := c.store.DB().ExecContext(c.Context(),
		"UPDATE payment_intents SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL"); err != nil {
		c.Fatal(err)
	}
}

// pushed is the body of the intent's event, with its key replaced.
func (c *checkout) pushed(intent models.PaymentIntentID) string {
	c.Helper()
	var key models.WebhookEventID
	var body []byte
	if err := c.store.DB().QueryRowContext(c.Context(),
		"SELECT id, body FROM webhook_events WHERE payment_intent_id = ?", intent).Scan(&key, &body); err != nil {
		c.Fatal(err)
	}
	if strings.Contains(string(body), "secret") {
		c.Errorf("the event reveals the payer: %s", body)
	}
	return strings.Replace(string(body), key.String(), "EVENT", 1)
}

func (c *checkout) task(id models.TaskID) (exists, waiting bool, availableAt models.Millis) {
	c.Helper()
	err := c.store.DB().QueryRowContext(c.Context(), `
SELECT count(*) > 0, coalesce(bool_and(dispatched_at IS NULL), false), coalesce(max(available_at), 0)
	FROM outbox WHERE id = ?`, id).
		Scan(&exists, &waiting, &availableAt)
	if err != nil {
		c.Fatal(err)
	}
	return exists, waiting, availableAt
}

func TestStartTransaction(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000, 700)
	ada, bob := models.Party{CustomerID: "ada", AgreementID: "a1"}, models.Party{CustomerID: "bob", AgreementID: "b1"}
	discount := models.Discount{LineItem: 0, Amount: 100, Reason: "r"}
	var refused *models.DiscountError
	_, err := c.store.StartTransaction(t.Context(), intent.Code, ada, []models.Discount{{LineItem: 0, Amount: 701}})
	if !errors.As(err, &refused) {
		t.Errorf("a discount above its line: %v", err)
	}
	c.want(intent, models.IntentCreated, "")

	started := modelstest.Pay(t, c.store, intent, ada, discount)
	got := c.get(intent).Transaction
	if got.ID != started.ID || got.Charge != 900 || got.StartedAt != noon ||
		len(got.Discounts) != 1 ||
		got.Discounts[0] != discount {
		t.Errorf("transaction %+v", got)
	}
	var again models.StartedTransaction
	for _, party := range []models.Party{ada, {CustomerID: ada.CustomerID, AgreementID: "another"}} {
		again, err = c.store.StartTransaction(t.Context(), intent.Code, party, nil)
		if err != nil || !again.Replayed || again.ID != started.ID || !again.Task.IsZero() {
			t.Errorf("the same customer again: %+v, %v", again, err)
		}
	}
	for _, party := range []models.Party{bob, {CustomerID: bob.CustomerID, AgreementID: ada.AgreementID}} {
		if _, err := c.store.StartTransaction(t.Context(), intent.Code, party, nil); !errors.Is(err,
			models.ErrIntentTaken) {
			t.Errorf("%+v: %v", party, err)
		}
	}
	modelstest.AdvanceClock(t, c.store, 48*time.Hour) // pending never expires
	if n, err := c.store.ExpirePaymentIntents(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("%d expired, %v", n, err)
	}
	c.want(intent, models.IntentPending, "")
	c.finish(c.claim(started.Task), models.TransactionResult{Status: models.TransactionFailed})
	if _, err = c.store.StartTransaction(t.Context(), intent.Code, bob, nil); !errors.Is(err, models.ErrIntentEnded) {
		t.Errorf("another customer after the end: %v", err)
	}
	again, err = c.store.StartTransaction(t.Context(), intent.Code, ada, nil)
	if err != nil || again.ID != started.ID {
		t.Errorf("the same customer after the end: %+v, %v", again, err)
	}
	modelstest.Audit(t, c.store)
}

func TestClaimFinish(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000)
	started := modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays))
	first := c.claim(started.Task)
	if !first.Claimed || first.InDoubt || first.Phase != models.PhaseAttempt || first.Charge != 1000 ||
		first.RailKey() != models.PaymentRailKey(intent.ID) {
		t.Errorf("claim %+v", first)
	}
	if other := c.claim(started.Task); other.Claimed {
		t.Errorf("claimed twice: %+v", other)
	}
	if phase, err := c.store.ExtendTransaction(t.Context(), first); phase != models.PhaseAttempt || err != nil {
		t.Errorf("held in phase %q, %v", phase, err)
	}
	c.workersDie()
	if _, err := c.store.ExtendTransaction(t.Context(), first); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a lease that ran out is held: %v", err)
	}
	second := c.claim(started.Task)
	if !second.Claimed || !second.InDoubt {
		t.Errorf("taken over: %+v", second)
	}
	for _, r := range []models.TransactionResult{ // what the first worker says without its lease changes nothing
		{Status: models.TransactionDeclined}, {Status: models.TransactionFailed}, {Release: true}, {},
	} {
		if done := c.finish(first, r); done.Ended {
			t.Errorf("%+v by a worker without a lease: %+v", r, done)
		}
	}
	if _, err := c.store.ExtendTransaction(t.Context(), second); err != nil {
		t.Errorf("the second worker lost its lease: %v", err)
	}
	modelstest.AdvanceClock(t, c.store, models.AnswerWithin)
	if phase, err := c.store.ExtendTransaction(t.Context(), second); phase != models.PhaseClose || err != nil {
		t.Errorf("held in phase %q once its time is over, %v", phase, err)
	}
	// the truth does
	if done := c.finish(first, models.TransactionResult{Status: models.TransactionSettled}); !done.Ended {
		t.Errorf("a late success: %+v", done)
	}
	if done := c.finish(second, models.TransactionResult{Status: models.TransactionSettled}); done.Ended {
		t.Errorf("settled twice: %+v", done)
	}
	c.want(intent, models.IntentFinal, models.TransactionSettled)
	if _, err := c.store.ClaimTransaction(t.Context(), started.Task, models.NewLeaseToken()); !errors.Is(err,
		models.ErrNotFound) {
		t.Errorf("a claim after the end: %v", err)
	}
	if exists, _, _ := c.task(started.Task); exists {
		t.Error("the task is still there")
	}
	modelstest.Audit(t, c.store)
}

// A worker ends a payment that the database has lost. Another customer has begun to pay meanwhile,
// whose payment goes on.
func TestLostPaymentEndsNoOther(t *testing.T) {
	for name, tt := range map[string]struct{ discount, charge models.Amount }{
		"debited": {0, 1000}, "without a charge": {1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			intent := modelstest.Intent(t, c.store, c.site.ID, 1000, 1000)
			lose := modelstest.Backup(t, c.store)
			var discounts []models.Discount
			if tt.discount > 0 {
				discounts = []models.Discount{{LineItem: 0, Amount: tt.discount, Reason: "r"}}
			}
			lost := c.claim(modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays),
				discounts...).Task)
			if !lost.Claimed || lost.Charge != tt.charge {
				t.Fatalf("claim %+v", lost)
			}
			lose()
			next := modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays))
			if done := c.finish(lost, models.TransactionResult{Status: models.TransactionSettled}); done.Ended {
				t.Errorf("the lost payment has ended the next one: %+v", done)
			}
			if got := c.get(intent); got.State != models.IntentPending || got.Transaction.ID != next.ID {
				t.Errorf("the next payment: %+v", got)
			}
			alerts, err := c.store.OpenAlerts(t.Context(), 10)
			if err != nil || len(alerts) > 0 {
				t.Errorf("alerts %+v, %v", alerts, err)
			}
		})
	}
}

// A charge of zero that another worker has ended otherwise is no debit, and raises no alert.
func TestZeroChargeIsNoDebit(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000, 1000)
	free := models.Discount{LineItem: 0, Amount: 1000, Reason: "r"}
	task := modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays), free).Task
	first := c.claim(task)
	c.workersDie()
	second := c.claim(task)
	if !second.Claimed {
		t.Fatalf("taken over: %+v", second)
	}
	if done := c.finish(first, models.TransactionResult{Status: models.TransactionSettled}); done.Ended {
		t.Errorf("ended by a worker without a lease: %+v", done)
	}
	if done := c.finish(second, models.TransactionResult{Status: models.TransactionSettled}); !done.Ended {
		t.Errorf("the holder of the lease: %+v", done)
	}
	c.want(intent, models.IntentFinal, models.TransactionSettled)
	modelstest.Audit(t, c.store)
}

func TestDeferAndPark(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000)
	task := modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays)).Task
	c.finish(c.claim(task), models.TransactionResult{Release: true, RetryAfter: time.Second})
	if _, waiting, at := c.task(task); !waiting || at != noon+1000 {
		t.Errorf("waiting %t at %d", waiting, at)
	}
	if early := c.claim(task); early.Claimed {
		t.Errorf("claimed before it was due: %+v", early)
	}
	modelstest.AdvanceClock(t, c.store, time.Second)
	again := c.claim(task)
	if !again.Claimed || again.InDoubt || again.Deferrals != 1 {
		t.Errorf("after a release: %+v", again)
	}
	c.finish(again, models.TransactionResult{RetryAfter: time.Second})
	modelstest.AdvanceClock(t, c.store, time.Second)
	doubt := c.claim(task)
	if !doubt.Claimed || !doubt.InDoubt || doubt.Deferrals != 2 {
		t.Errorf("in doubt: %+v", doubt)
	}
	modelstest.AdvanceClock(t, c.store, models.AnswerWithin-2*time.Second-1)
	c.finish(doubt, models.TransactionResult{})
	if doubt = c.claim(task); doubt.Phase != models.PhaseAttempt {
		t.Errorf("phase %s a millisecond before the end", doubt.Phase)
	}
	if alerts := c.alerts(); len(alerts) != 0 {
		t.Errorf("alerts %+v", alerts)
	}
	modelstest.AdvanceClock(t, c.store, time.Millisecond)
	c.finish(doubt, models.TransactionResult{RetryAfter: time.Second})
	if alerts := c.alerts(); len(alerts) != 1 || alerts[0].Kind != models.AlertTransactionInDoubt {
		t.Errorf("alerts %+v", alerts)
	}
	modelstest.AdvanceClock(t, c.store, time.Second)
	closing := c.claim(task)
	if closing.Phase != models.PhaseClose {
		t.Errorf("phase %s", closing.Phase)
	}
	c.finish(closing, models.TransactionResult{Status: models.TransactionFailed})
	if alerts := c.alerts(); len(alerts) != 0 {
		t.Errorf("alerts %+v", alerts)
	}
	c.want(intent, models.IntentFinal, models.TransactionFailed)
	modelstest.Audit(t, c.store)
}

func (c *checkout) alerts() []models.Alert {
	c.Helper()
	alerts, err := c.store.OpenAlerts(c.Context(), 10)
	if err != nil {
		c.Fatal(err)
	}
	return alerts
}

// A duplicate of a task waits for the lease of the worker that holds the transaction.
func TestParkWhileHeld(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000)
	task := modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays)).Task
	dispatch := models.Dispatch{Queue: models.QueueCheckout, Limit: 10, InFlight: 10}
	if tasks, err := c.store.ClaimDue(t.Context(), dispatch); len(tasks) != 1 || err != nil {
		t.Fatalf("%d tasks are due, %v", len(tasks), err)
	}
	c.claim(task)
	if err := c.store.ParkTransaction(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if _, waiting, _ := c.task(task); waiting {
		t.Error("it goes out at once")
	}
	c.workersDie()
	if err := c.store.ParkTransaction(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if _, waiting, _ := c.task(task); !waiting {
		t.Error("it does not go out again")
	}
}

// A rail that first confirms that nothing was debited, and later reports a debit, raises an alert.
func TestRailContradiction(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000)
	claimed := c.claim(modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays)).Task)
	c.finish(claimed, models.TransactionResult{Status: models.TransactionFailed})
	if done := c.finish(claimed, models.TransactionResult{Status: models.TransactionSettled}); done.Ended {
		t.Errorf("%+v", done)
	}
	c.want(intent, models.IntentFinal, models.TransactionFailed)
	if alerts := c.alerts(); len(alerts) != 1 || alerts[0].Kind != models.AlertRailContradiction {
		t.Errorf("alerts %+v", alerts)
	}
}

func TestTransactionsDoNotEndAsUnscannedOnes(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000)
	claimed := c.claim(modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays)).Task)
	for _, status := range []models.TransactionStatus{models.TransactionCancelled, models.TransactionExpired,
		"settled"} {
		if _, err := c.store.FinishTransaction(t.Context(), claimed,
			models.TransactionResult{Status: status}); err == nil {
			t.Errorf("it ended as %s", status)
		}
	}
	c.want(intent, models.IntentPending, "")
}

// A worker that has lost its lease leaves the task to the dispatcher: it must not delay the task's
// next dispatch.
func TestExpiredLeaseDoesNotExtendItsTask(t *testing.T) {
	c := newCheckout(t)
	intent := modelstest.Intent(t, c.store, c.site.ID, 1000)
	started := modelstest.Pay(t, c.store, intent, modelstest.Payer(t, c.store, models.BehaviourPays))
	if _, err := c.store.DB().ExecContext(t.Context(),
		"UPDATE outbox SET dispatched_at = clock_timestamp(), redispatch_after = clock_timestamp() WHERE id = ?",
		started.Task); err != nil {
		t.Fatal(err)
	}
	claimed := c.claim(started.Task)
	c.workersDie()
	redispatch := func() (at time.Time) {
		if err := c.store.DB().QueryRowContext(t.Context(), "SELECT redispatch_after FROM outbox WHERE id = ?",
			started.Task).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := redispatch()
	if _, err := c.store.ExtendTransaction(t.Context(), claimed); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("an expired lease is extended: %v", err)
	}
	if after := redispatch(); !after.Equal(before) {
		t.Errorf("the task's redispatch moved by %s", after.Sub(before))
	}
}
