package models_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

func TestParseBehaviour(t *testing.T) {
	for _, b := range models.Behaviours {
		if got, err := models.ParseBehaviour(string(b)); got != b || err != nil {
			t.Errorf("%q: %q, %v", b, got, err)
		}
	}
	for _, s := range []string{"", "Pays", "pays ", "bankdown", "declined"} {
		if got, err := models.ParseBehaviour(s); !errors.Is(err, models.ErrUnknownBehaviour) {
			t.Errorf("%q: %q, %v, want ErrUnknownBehaviour", s, got, err)
		}
	}
}

func sandboxOrder(key, agreement string, amount models.Amount) models.SandboxOrder {
	return models.SandboxOrder{
		Key: key, SandboxParticulars: models.SandboxParticulars{AgreementID: agreement, Amount: amount,
			Currency: "AUD"},
	}
}

func orders(n int, agreement string) []models.SandboxOrder {
	all := make([]models.SandboxOrder, n)
	for i := range all {
		all[i] = sandboxOrder(fmt.Sprintf("k%03d", i), agreement, models.Amount(i+1))
	}
	return all
}

// TestSandboxAccountStays opens an account twice: the first behaviour and the first opening time
// stay.
func TestSandboxAccountStays(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	must(t, store.OpenSandboxAccount(ctx, "a", models.BehaviourBankDown))
	modelstest.AdvanceClock(t, store, models.SandboxBankDownFor-time.Millisecond)
	must(t, store.OpenSandboxAccount(ctx, "a", models.BehaviourPays))
	if err := store.OpenSandboxAccount(ctx, "b", "generous"); !errors.Is(err, models.ErrUnknownBehaviour) {
		t.Errorf("an unknown behaviour: %v", err)
	}
	for _, want := range []models.SandboxStatus{models.SandboxBankIsDown, models.SandboxSucceeded} {
		answers, err := store.DebitSandbox(ctx, orders(1, "a"))
		must(t, err)
		if answers[0].Status != want {
			t.Errorf("debit: %v, want %v", answers[0], want)
		}
		modelstest.AdvanceClock(t, store, time.Millisecond)
	}
}

// TestSandboxSlowIsRealTime advances the service clock, which does not hasten a slow bank.
func TestSandboxSlowIsRealTime(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), modelstest.Open(t)
	must(t, store.OpenSandboxAccount(ctx, "a", models.BehaviourSlow))
	for range 2 {
		answers, err := store.DebitSandbox(ctx, orders(1, "a"))
		must(t, err)
		a := answers[0]
		if a.Status != models.SandboxUndecided || a.DueIn <= 0 || a.DueIn > models.SandboxSlowness {
			t.Fatalf("debit: %+v", a)
		}
		_, err = store.AdvanceClock(ctx, 24*time.Hour)
		must(t, err)
	}
}

// TestSandboxDebitsPages reads a list with a due debit that no call has asked about.
func TestSandboxDebitsPages(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), modelstest.Open(t)
	must(t, store.OpenSandboxAccount(ctx, "a", models.BehaviourPays))
	must(t, store.OpenSandboxAccount(ctx, "slow", models.BehaviourSlow))
	all := orders(25, "a")
	all[7].AgreementID, all[9].AgreementID = "slow", "nobody"
	_, err := store.DebitSandbox(ctx, all)
	must(t, err)
	_, err = store.CancelSandbox(ctx, []string{"k0"}) // sorts first
	must(t, err)
	_, err = store.DB().ExecContext(ctx,
		"UPDATE sandbox_debits SET due_at = now() - interval '1 second' WHERE key = 'k007'")
	must(t, err)

	var got []models.SandboxDebit
	for after := ""; ; after = got[len(got)-1].Key {
		page, err := store.SandboxDebits(ctx, after, 10)
		must(t, err)
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
	}
	if len(got) != 26 || got[0].Key != "k0" || got[0].Status != models.SandboxCancelled || got[0].AgreementID != "" {
		t.Fatalf("%d entries, the first is %+v", len(got), got[0])
	}
	for i, d := range got[1:] {
		want := models.SandboxDebit{SandboxOrder: all[i], Status: models.SandboxSucceeded, ChangedAt: d.ChangedAt}
		if i == 9 {
			want.Status, want.Reason = models.SandboxRefused, "accountUnavailable"
		}
		if d != want || d.ChangedAt == 0 {
			t.Errorf("entry %d is %+v, want %+v", i, d, want)
		}
	}
}

// TestSandboxErrors distinguishes errors that may have debited from errors that certainly have not.
func TestSandboxErrors(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), modelstest.Open(t)
	must(t, store.OpenSandboxAccount(ctx, "a", models.BehaviourPays))

	broken := orders(1, "a")
	broken[0].Key = "\xff"
	if _, err := store.DebitSandbox(ctx, broken); !errors.Is(err, models.ErrSandboxUntouched) {
		t.Errorf("a statement that Postgres refuses: %v, want ErrSandboxUntouched", err)
	}

	nowhere, err := models.Open(postgres.Config{DSN: "postgres://nobody@127.0.0.1:1/none"})
	must(t, err)
	defer func() { must(t, nowhere.Close()) }()
	if _, err := nowhere.DebitSandbox(ctx, orders(1, "a")); !errors.Is(err, models.ErrSandboxUntouched) {
		t.Errorf("no server: %v, want ErrSandboxUntouched", err)
	}

	// The statement waits for a lock when its context ends: it may have taken effect or not.
	lock, err := store.DB().BeginTx(ctx, nil)
	must(t, err)
	defer func() { _ = lock.Rollback() }()
	_, err = lock.ExecContext(ctx, "LOCK TABLE sandbox_debits IN EXCLUSIVE MODE")
	must(t, err)
	ended, end := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := store.DebitSandbox(ended, orders(1, "a"))
		failed <- err
	}()
	awaitLockWait(t, store)
	end()
	if err := <-failed; err == nil || errors.Is(err, models.ErrSandboxUntouched) {
		t.Errorf("context ended in the middle: %v, want an error that leaves it open", err)
	}
}

// awaitLockWait waits until some statement waits for a lock.
func awaitLockWait(t *testing.T, store *models.Store) {
	t.Helper()
	for {
		var waiting bool
		must(t, store.DB().NewRaw(`SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND database =
			(SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(t.Context(), &waiting))
		if waiting {
			return
		}
	}
}

// TestSandboxFaults checks that each fault lasts for its duration, for accounts of every behaviour.
func TestSandboxFaults(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	for _, b := range []models.Behaviour{models.BehaviourPays, models.BehaviourInsufficientFunds} {
		must(t, store.OpenSandboxAccount(ctx, string(b), b))
	}
	made := 0
	expect := func(when string, pays, refuses models.SandboxStatus) []models.SandboxOrder {
		t.Helper()
		made++
		asked := []models.SandboxOrder{
			sandboxOrder(fmt.Sprint("p", made), string(models.BehaviourPays), 5),
			sandboxOrder(fmt.Sprint("r", made), string(models.BehaviourInsufficientFunds), 5),
		}
		answers, err := store.DebitSandbox(ctx, asked)
		must(t, err)
		if answers[0].Status != pays || answers[1].Status != refuses {
			t.Errorf("%s: %v", when, answers)
		}
		return asked
	}
	again := func(when string, asked []models.SandboxOrder, pays, refuses models.SandboxStatus) {
		t.Helper()
		answers, err := store.DebitSandbox(ctx, asked)
		must(t, err)
		if answers[0].Status != pays || answers[1].Status != refuses {
			t.Errorf("%s, the same keys: %v", when, answers)
		}
	}
	before := expect("no fault", models.SandboxSucceeded, models.SandboxRefused)
	must(t, store.SetSandboxFault(ctx, models.SandboxFaultBankDown, time.Minute))
	unanswered := expect("bank down", models.SandboxBankIsDown, models.SandboxBankIsDown)
	again("bank down", before, models.SandboxSucceeded, models.SandboxRefused)
	active, err := store.ActiveSandboxFaults(ctx)
	must(t, err)
	if len(active) != 1 || active[models.SandboxFaultBankDown] != noon.Add(time.Minute) {
		t.Errorf("active: %v", active)
	}
	modelstest.AdvanceClock(t, store, time.Minute-time.Millisecond)
	again("a millisecond before its end", unanswered, models.SandboxBankIsDown, models.SandboxBankIsDown)
	modelstest.AdvanceClock(t, store, time.Millisecond)
	again("at its end", unanswered, models.SandboxSucceeded, models.SandboxRefused)

	must(t, store.SetSandboxFault(ctx, models.SandboxFaultAnswersLost, time.Minute))
	lost := expect("answers lost", models.SandboxLost, models.SandboxLost)
	again("answers lost", lost, models.SandboxSucceeded, models.SandboxRefused)
	must(t, store.SetSandboxFault(ctx, models.SandboxFaultBankDown, time.Minute))
	expect("both", models.SandboxBankIsDown, models.SandboxBankIsDown)
	must(t, store.SetSandboxFault(ctx, models.SandboxFaultBankDown, 0))
	expect("the bank is back", models.SandboxLost, models.SandboxLost)
	must(t, store.SetSandboxFault(ctx, models.SandboxFaultAnswersLost, 0))
	expect("ended", models.SandboxSucceeded, models.SandboxRefused)
	if active, err := store.ActiveSandboxFaults(ctx); len(active) != 0 || err != nil {
		t.Errorf("active: %v, %v", active, err)
	}
	for _, lasts := range []time.Duration{-1, models.MaxSandboxFault + 1} {
		if err := store.SetSandboxFault(ctx, models.SandboxFaultBankDown, lasts); !errors.Is(err,
			models.ErrSandboxFault) {
			t.Errorf("for %v: %v", lasts, err)
		}
	}
	if err := store.SetSandboxFault(ctx, "earthquake", time.Second); !errors.Is(err, models.ErrSandboxFault) {
		t.Error(err)
	}
}

func BenchmarkDebitSandbox(b *testing.B) {
	ctx, store := b.Context(), modelstest.Open(b)
	const accounts, chunk = 1000, 100
	for i := range accounts {
		must(b, store.OpenSandboxAccount(ctx, fmt.Sprintf("agr-%d", i), models.BehaviourPays))
	}
	made := 0
	for b.Loop() {
		all := make([]models.SandboxOrder, chunk)
		for i := range all {
			all[i] = sandboxOrder(fmt.Sprintf("r1_%032x%032x", made, i),
				fmt.Sprintf("agr-%d", (made*7+i)%accounts), 100)
		}
		made++
		answers, err := store.DebitSandbox(ctx, all)
		must(b, err)
		if answers[0].Status != models.SandboxSucceeded {
			b.Fatal(answers[0])
		}
	}
	b.ReportMetric(float64(made*chunk)/b.Elapsed().Seconds(), "debits/s")
}

// TestSandboxDecidesOnce asks about a debit and cancels it when it becomes due: all answers agree.
func TestSandboxDecidesOnce(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), modelstest.Open(t)
	must(t, store.OpenSandboxAccount(ctx, "a", models.BehaviourSlow))
	all := orders(50, "a")
	_, err := store.DebitSandbox(ctx, all)
	must(t, err)
	_, err = store.DB().ExecContext(ctx, "UPDATE sandbox_debits SET due_at = now()")
	must(t, err)
	for _, o := range all {
		keys := []string{o.Key}
		asks := []func() ([]models.SandboxAnswer, error){
			func() ([]models.SandboxAnswer, error) { return store.LookupSandbox(ctx, keys) },
			func() ([]models.SandboxAnswer, error) { return store.CancelSandbox(ctx, keys) },
			func() ([]models.SandboxAnswer, error) { return store.DebitSandbox(ctx, []models.SandboxOrder{o}) },
		}
		answers := make([]models.SandboxAnswer, len(asks))
		var wg sync.WaitGroup
		for i, ask := range asks {
			wg.Go(func() {
				got, err := ask()
				if err != nil {
					t.Error(err)
					return
				}
				answers[i] = got[0]
			})
		}
		wg.Wait()
		held := answers[0] // lookup and cancellation also report what the key holds
		debit := models.SandboxAnswer{Status: held.Status}
		if s := held.Status; answers[1] != held || answers[2] != debit || held.Held != o.SandboxParticulars ||
			s != models.SandboxSucceeded && s != models.SandboxCancelled {
			t.Fatalf("%s: lookup, cancel and debit say %v", o.Key, answers)
		}
	}
}
