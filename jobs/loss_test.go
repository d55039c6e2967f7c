package jobs

import (
	"errors"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func (b *billing) cancelBatch() {
	b.Helper()
	if _, _, err := b.store.CancelBatch(b.Context(), b.site.ID, "batch"); err != nil {
		b.Fatal(err)
	}
}

// Rows were debited, and a failover has lost the records. The rows end as the rail says, whatever
// happens afterwards.
func TestLossAfterADebit(t *testing.T) {
	for name, then := range map[string]func(*billing){
		"goes on":          func(*billing) {},
		"customer revoked": func(b *billing) { b.revoke("ada") },
		"batch cancelled":  func(b *billing) { b.cancelBatch() },
		"last half hour": func(b *billing) {
			b.advance(models.SettleWithin - models.LastAttemptBefore)
			if n, err := b.store.CloseUnsentRows(b.Context()); n != 0 || err != nil {
				b.Errorf("closed %d rows without asking, %v", n, err)
			}
		},
		"after the deadline": func(b *billing) {
			b.advance(models.SettleWithin)
			b.close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBilling(t)
			b.submit("ada", "ada")
			lose := modelstest.Backup(t, b.store)
			b.run()
			b.want("succeeded", "succeeded")
			lose()
			then(b)
			b.run()
			_, rows, err := b.store.GetBatch(t.Context(), b.site.ID, "batch")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.Outcome != models.OutcomeSucceeded && r.CorrectedOutcome != models.OutcomeSucceeded {
					t.Errorf("row %d is %s, corrected to %q", r.Index, r.Outcome, r.CorrectedOutcome)
				}
			}
			b.wantMoved(0, 1)
			modelstest.Audit(t, b.store)
		})
	}
}

// A failover has lost the first record of a run. When the run records the rest, its task stays for
// the rows that are open again.
func TestLossOfAPartOfARun(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "ada")
	chunk, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows})
	if err != nil || chunk.Open != 2 || len(chunk.Rows) != 2 {
		t.Fatalf("%d of %d open rows claimed, %v", len(chunk.Rows), chunk.Open, err)
	}
	lose := modelstest.Backup(t, b.store)
	for row := range 2 {
		railtest.Debit(t.Context(), t, b.rail, rail.Debit{
			Key: b.key(row), AgreementID: chunk.Rows[row].Account.AgreementID, Amount: chunk.Rows[row].Amount,
			Currency: chunk.Currency,
		})
		result := models.RowResult{
			Index: row, RailKey: b.key(row), Outcome: models.OutcomeSucceeded, FromRail: true, Answered: true,
		}
		if _, err := b.store.FinishRows(t.Context(), chunk, []models.RowResult{result}, chunk.Open-row); err != nil {
			t.Fatal(err)
		}
		if row == 0 {
			lose()
		}
	}
	b.want("inProgress", "succeeded")
	modelstest.Audit(t, b.store)
	b.expireLeases()
	b.run()
	b.want("succeeded", "succeeded")
	b.wantMoved(0, 1)
	modelstest.Audit(t, b.store)
}

// The batch itself is lost, and the partner submits it again: the rows get the keys of the first
// submission.
func TestLossOfABatch(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(*billing)
		want []string
	}{
		"submitted again":    {func(*billing) {}, []string{"succeeded", "insufficientFunds"}},
		"and then cancelled": {func(b *billing) { b.cancelBatch() }, []string{"succeeded", "insufficientFunds"}},
		"and customers leave": {func(b *billing) { b.revoke("ada"); b.revoke("bob") },
			[]string{"succeeded", "insufficientFunds"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBilling(t)
			modelstest.Customer(t, b.store, b.site.ID, "ada", models.BehaviourPays)
			modelstest.Customer(t, b.store, b.site.ID, "bob", models.BehaviourPays)
			lose := modelstest.Backup(t, b.store)
			done := modelstest.Submit(t, b.store, modelstest.Batch(b.site, "batch", "ada", "bob"))
			b.batch, b.tasks = done.Batch, done.Tasks
			b.rail.Script(b.key(1), railtest.Refuse("insufficientFunds"))
			b.run()
			b.want("succeeded", "insufficientFunds")
			lose()
			done = modelstest.Submit(t, b.store, modelstest.Batch(b.site, "batch", "ada", "bob"))
			b.batch, b.tasks = done.Batch, done.Tasks
			tt.then(b)
			b.run()
			b.want(tt.want...)
			b.wantMoved(0)
			modelstest.Audit(t, b.store)
		})
	}
}

// The partner submits a different batch under the reference of the lost one. The rail holds another
// debit under the key: nothing is debited, and an operator must decide.
func TestLossOfABatchThatIsSubmittedDifferently(t *testing.T) {
	b := newBilling(t)
	modelstest.Customer(t, b.store, b.site.ID, "ada", models.BehaviourPays)
	lose := modelstest.Backup(t, b.store)
	done := modelstest.Submit(t, b.store, modelstest.Batch(b.site, "batch", "ada"))
	b.batch, b.tasks = done.Batch, done.Tasks
	b.run()
	lose()
	other := modelstest.Batch(b.site, "batch", "ada")
	other.Rows[0].Amount += 5
	done = modelstest.Submit(t, b.store, other)
	b.batch, b.tasks = done.Batch, done.Tasks
	b.run()
	b.want("unconfirmed")
	b.advance(models.SettleWithin + time.Hour)
	b.run()
	b.want("unconfirmed")
	b.wantAlert(models.AlertRailConflict, b.key(0))
	if _, err := b.store.DecideRow(t.Context(), b.site.ID, "batch", "row-0", ""); err == nil {
		t.Error("no decision counts as one")
	}
	outcome, err := b.store.DecideRow(t.Context(), b.site.ID, "batch", "row-0", models.DecidedNotDebited)
	if err != nil || outcome != models.OutcomeTimedOut {
		t.Errorf("decided: %s, %v", outcome, err)
	}
	_, err = b.store.DecideRow(t.Context(), b.site.ID, "batch", "row-0", models.DecidedDebited)
	if !errors.Is(err, models.ErrNoDecisionNeeded) {
		t.Errorf("decided twice: %v", err)
	}
	b.wantAlert("", "")
}

// wantAlert checks that exactly this alert about a rail key is open, or none if kind is empty.
func (b *billing) wantAlert(kind, subject string) {
	b.Helper()
	alerts, err := b.store.OpenAlerts(b.Context(), 10)
	if err != nil {
		b.Fatal(err)
	}
	found := map[string]bool{}
	for _, a := range alerts {
		switch a.Kind {
		case models.AlertRailConflict, models.AlertRailForgot, models.AlertPartyUnreadable:
			found[a.Kind+" "+a.Subject] = true
		}
	}
	if kind == "" && len(found) > 0 || kind != "" && (len(found) != 1 || !found[kind+" "+subject]) {
		b.Errorf("open alerts %v, want %s %s", found, kind, subject)
	}
}

// A result without the rail's answer is dropped if the database has changed since the claim.
func TestLossBetweenClaimAndRecord(t *testing.T) {
	b := newBilling(t)
	b.submit("ada")
	b.revoke("ada")
	chunk, err := b.store.ClaimChunk(t.Context(), b.tasks[0], models.NewLeaseToken(), models.Part{Rows: 1})
	if err != nil {
		t.Fatal(err)
	}
	modelstest.Backup(t, b.store)() // loses nothing, but the worker cannot know
	settled, err := b.store.FinishRows(t.Context(), chunk, []models.RowResult{
		{Index: 0, RailKey: b.key(0), Outcome: models.OutcomeCustomerNotActive, Calls: -1},
	}, 1)
	if err != nil || len(settled) > 0 {
		t.Errorf("settled %v, %v", settled, err)
	}
	b.run()
	b.want("customerNotActive")
	if calls := b.rail.Calls(b.key(0)); calls.Cancels != 1 {
		t.Errorf("calls %+v: only the rail may close the row", calls)
	}
}

// Restored work is held until an operator decides.
func TestRestore(t *testing.T) {
	for name, tt := range map[string]struct {
		decide func(*models.Store) func() error
		want   []string
		moved  []int
	}{
		"resume": {func(s *models.Store) func() error {
			return func() error { _, err := s.ResumeRestored(t.Context()); return err }
		}, []string{"succeeded", "succeeded"}, []int{0, 1}},
		"cancel": {func(s *models.Store) func() error {
			return func() error { _, err := s.CancelRestored(t.Context()); return err }
		}, []string{"succeeded", "cancelled"}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBilling(t)
			b.submit("ada", "bob")
			lose := modelstest.Backup(t, b.store)
			b.rail.Script(b.key(1), railtest.Unavailable)
			b.run()
			b.want("succeeded", "pending")
			b.cancelBatch()
			b.want("succeeded", "cancelled") // the restore loses the cancellation
			lose()
			epoch, err := b.store.BeginEpoch(t.Context())
			if err != nil || epoch.HeldBefore != epoch.Number || epoch.InDoubt != 1 {
				t.Fatalf("epoch %+v, %v", epoch, err)
			}
			calls := b.rail.Calls(b.key(0))
			b.run()
			b.want("pending", "pending")
			if now := b.rail.Calls(b.key(0)); now != calls {
				t.Errorf("calls for held work: %+v", now)
			}
			if err := tt.decide(b.store)(); err != nil {
				t.Fatal(err)
			}
			if err := tt.decide(b.store)(); !errors.Is(err, models.ErrNothingHeld) {
				t.Errorf("decided twice: %v", err)
			}
			b.advance(time.Minute)
			b.run()
			b.want(tt.want...)
			b.wantMoved(tt.moved...)
			modelstest.Audit(t, b.store)
		})
	}
}

// A rail may forget a key seven days after the last call. Then an answer of "never seen" proves
// nothing.
func TestForgottenKey(t *testing.T) {
	b := newBilling(t)
	b.submit("ada", "bob")
	b.rail.SetDefault(railtest.LoseRequest)
	b.run()
	b.advance(models.SettleWithin)
	b.close()
	b.want("unconfirmed", "unconfirmed")
	b.rail.SetDefault(railtest.Succeed)
	b.advance(models.RailMemory - time.Hour) // the last calls were at the beginning
	b.run()
	b.want("unconfirmed", "unconfirmed")
	b.wantForgotten(b.key(0), b.key(1))
	b.wantMoved()
}

func (b *billing) wantForgotten(keys ...string) {
	b.Helper()
	alerts, err := b.store.OpenAlerts(b.Context(), 10)
	if err != nil {
		b.Fatal(err)
	}
	found := map[string]bool{}
	for _, a := range alerts {
		found[a.Kind+" "+a.Subject] = true
	}
	for _, key := range keys {
		if !found[models.AlertRailForgot+" "+key] {
			b.Errorf("open alerts %v, want one for %s", found, key)
		}
	}
}

// A payment was made, and a failover has lost all of it.
func TestLossOfAPayment(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(*till)
		want string
	}{
		"expires": {func(b *till) { b.advance(models.DefaultIntentLife) }, "Settled"},
		"is cancelled": {func(b *till) {
			_, _, err := b.store.CancelPaymentIntent(b.Context(), b.site.ID, b.intent.ID)
			if !errors.Is(err, models.ErrIntentNotCancellable) {
				b.Errorf("cancelled: %v", err)
			}
		}, "Settled"},
		"is paid again": {func(b *till) {
			b.started = modelstest.Pay(b, b.store, b.intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
		}, "Settled"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTill(t)
			b.intent = modelstest.Intent(b, b.store, b.site.ID, price, price)
			lose := modelstest.Backup(t, b.store)
			b.started = modelstest.Pay(b, b.store, b.intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
			b.run()
			b.want("Settled")
			lose()
			tt.then(b)
			b.runAll()
			b.want(tt.want)
		})
	}
}

// runAll reads the intent, as its partner does, and runs the task of its settlement.
func (b *till) runAll() {
	b.Helper()
	if _, err := b.store.PaymentIntent(b.Context(), b.site.ID, b.intent.ID); err != nil {
		b.Fatal(err)
	}
	query := b.store.DB().NewRaw("SELECT id FROM outbox WHERE kind = 'settleTransaction'")
	if err := query.Scan(b.Context(), &b.started.Task); err != nil {
		b.Fatal(err)
	}
	b.run()
}

// There was no payment before the loss. The rail confirms it, and the cancellation of the intent
// succeeds.
func TestLossBeforeAnyPayment(t *testing.T) {
	b := newTill(t)
	b.intent = modelstest.Intent(b, b.store, b.site.ID, price, price)
	modelstest.Backup(t, b.store)()
	_, _, err := b.store.CancelPaymentIntent(t.Context(), b.site.ID, b.intent.ID)
	if !errors.Is(err, models.ErrIntentNotCancellable) {
		t.Errorf("cancelled without the rail: %v", err)
	}
	b.want("pending")
	b.runAll()
	b.want("Cancelled")
	b.wantCalls(railtest.Calls{Cancels: 1})
	if _, _, err := b.store.CancelPaymentIntent(t.Context(), b.site.ID, b.intent.ID); err != nil {
		t.Errorf("cancelled again: %v", err)
	}
}

// Another customer pays after the loss. The rail holds the first payment under the key, and an
// operator must decide.
func TestLossOfAPaymentThatAnotherCustomerRepeats(t *testing.T) {
	b := newTill(t)
	b.intent = modelstest.Intent(b, b.store, b.site.ID, price, price)
	lose := modelstest.Backup(t, b.store)
	b.started = modelstest.Pay(b, b.store, b.intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
	b.run()
	lose()
	b.started = modelstest.Pay(b, b.store, b.intent, models.Party{CustomerID: "bob", AgreementID: "another agreement"})
	b.run()
	b.want("pending")
	status, _, err := b.store.DecidePayment(t.Context(), b.intent.ID, models.DecidedDebited)
	if err != nil || status != models.TransactionSettled {
		t.Errorf("decided: %s, %v", status, err)
	}
	b.want("Settled")
	_, _, err = b.store.DecidePayment(t.Context(), b.intent.ID, models.DecidedDebited)
	if !errors.Is(err, models.ErrNoDecisionNeeded) {
		t.Errorf("decided twice: %v", err)
	}
}
