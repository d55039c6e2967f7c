package jobs

import (
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// audited are books with the recurring audit.
type audited struct {
	*books
	audit *AuditBooks
}

func newAudited(t *testing.T) *audited {
	t.Parallel()
	store := modelstest.Open(t)
	b := newBooks(t, store, rail.NewSandbox(store))
	return &audited{b, &AuditBooks{Store: store, Now: time.Now, Log: slog.New(slog.DiscardHandler)}}
}

// pass advances the clock until a new pass may begin, and runs the audit until that pass has ended.
func (a *audited) pass() {
	a.Helper()
	modelstest.AdvanceClock(a, a.store, auditPassInterval)
	for runs := 0; ; runs++ {
		if err := a.audit.Run(a.Context(), models.Task{ID: models.TaskID(uuid.New())}); err != nil {
			a.Fatal(err)
		}
		pass, err := a.store.AuditPass(a.Context())
		if err != nil {
			a.Fatal(err)
		}
		if pass.Position == 0 && pass.Age() == 0 {
			return
		}
		if runs == 500 {
			a.Fatalf("the pass does not end: %+v", pass)
		}
	}
}

// violations returns the number of open alerts about each invariant, by the invariant's name.
func (a *audited) violations() map[string]int {
	a.Helper()
	alerts, err := a.store.OpenAlerts(a.Context(), 100)
	if err != nil {
		a.Fatal(err)
	}
	found := map[string]int{}
	for _, alert := range alerts {
		if alert.Kind == models.AlertAuditViolation {
			check, _, _ := strings.Cut(alert.Subject, ": ")
			found[check]++
		}
	}
	return found
}

// The recurring audit finds what the whole audit finds, and nothing in books that are right.
func TestAuditBooksFindsViolations(t *testing.T) {
	a := newAudited(t)
	a.bill("batch", models.BehaviourPays, models.BehaviourPays, models.BehaviourDeclines)
	a.bill("other", models.BehaviourPays)
	paid := a.pay(models.BehaviourPays)
	a.pay(models.BehaviourDeclines)
	a.pass()
	if got := a.violations(); len(got) != 0 {
		t.Errorf("violations %v", got)
	}
	declined := a.pay(models.BehaviourInsufficientFunds)
	modelstest.AdvanceClock(t, a.store, 40*day)
	a.bill("later", models.BehaviourPays)

	rowKey, err := a.store.RowRailKey(t.Context(), a.site.ID, "batch", "row-2")
	if err != nil {
		t.Fatal(err)
	}
	a.exec("UPDATE batches SET succeeded_amount = succeeded_amount + 1 WHERE batch_reference = 'later'")
	a.exec("DELETE FROM batch_references WHERE batch_reference = 'other'")
	a.exec("DELETE FROM ledger_entries WHERE batch_reference = 'batch' AND row_reference = 'row-0'")
	a.exec(`
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
    customer_reference) VALUES (?, ?, svc_now(), 102, 'AUD', 'batch', 'row-2', 'c')`, rowKey, a.site.ID)
	a.exec(`UPDATE ledger_entries SET debit_account = credit_account, credit_account = debit_account
WHERE batch_reference = 'other'`)
	a.exec("DELETE FROM ledger_entries WHERE payment_intent_id = ?", paid.ID)
	a.exec("DELETE FROM webhook_events WHERE payment_intent_id = ?", declined.ID)
	a.exec(`INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, payment_intent_id)
VALUES (?, ?, svc_now(), 100, 'AUD', ?)`, models.PaymentRailKey(declined.ID), a.site.ID, declined.ID)
	modelstest.AdvanceClock(t, a.store, time.Minute)
	a.pass()

	whole, err := a.store.Audit(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, v := range whole {
		want[v.Check]++
	}
	got := a.violations()
	// The whole audit does not look for the events of payments that ended long ago, because a
	// retention period may have deleted them.
	delete(want, "a payment intent has ended with one event, which says how")
	delete(got, "a payment intent has ended with one event, which says how")
	if !maps.Equal(got, want) || len(want) != 7 {
		t.Errorf("violations %v, the whole audit finds %v", got, want)
	}
	closed := a.violations()
	a.exec("UPDATE alerts SET closed_at = svc_now()")
	a.pass()
	if again := a.violations(); len(again) < len(want) {
		t.Errorf("%v were closed, and %v found again", closed, again)
	}
}

// A run ends when its time is used, and the next one continues. Slow windows become shorter.
func TestAuditBooksIsBounded(t *testing.T) {
	a := newAudited(t)
	modelstest.AdvanceClock(t, a.store, auditPassInterval)
	clock := time.Unix(0, 0)
	a.audit.Now = func() time.Time { clock = clock.Add(700 * time.Millisecond); return clock }
	position, windows := models.Millis(0), map[time.Duration]bool{}
	for range 5 {
		if err := a.audit.Run(t.Context(), models.Task{ID: models.TaskID(uuid.New())}); err != nil {
			t.Fatal(err)
		}
		pass, err := a.store.AuditPass(t.Context())
		if err != nil || pass.Position <= position || pass.Position >= pass.Now {
			t.Fatalf("the pass is at %+v after %d, %v", pass, position, err)
		}
		position, windows[pass.Window()] = pass.Position, true
	}
	if len(windows) != 1 {
		t.Errorf("windows %v of neither slow nor fast steps", windows)
	}
	a.audit.Now = func() time.Time { clock = clock.Add(1500 * time.Millisecond); return clock }
	before, _ := a.store.AuditPass(t.Context())
	for range 40 {
		if err := a.audit.Run(t.Context(), models.Task{ID: models.TaskID(uuid.New())}); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := a.store.AuditPass(t.Context()); err != nil || after.Window() >= before.Window() ||
		after.Window() < minAuditWindow {
		t.Errorf("the window was %s and is %s, %v", before.Window(), after.Window(), err)
	}
}

// A pass begins at most once an hour. Of two concurrent runs, only one moves the pass.
func TestAuditBooksPausesBetweenPasses(t *testing.T) {
	a := newAudited(t)
	a.pass()
	ended, err := a.store.AuditPass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	modelstest.AdvanceClock(t, a.store, auditPassInterval-time.Millisecond)
	if err := a.audit.Run(t.Context(), models.Task{ID: models.TaskID(uuid.New())}); err != nil {
		t.Fatal(err)
	}
	if pass, err := a.store.AuditPass(t.Context()); err != nil || pass.EndedAt != ended.EndedAt || pass.Position != 0 {
		t.Errorf("%+v, %v; the last pass was %+v", pass, err, ended)
	}
	for _, want := range []bool{true, false} {
		if moved, err := a.store.MoveAudit(t.Context(), ended, 5, time.Hour, nil); moved != want || err != nil {
			t.Errorf("moved %v, %v; want %v", moved, err, want)
		}
	}
}
