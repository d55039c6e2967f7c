package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// A debit that the ledger does not know is found within one period, once. It stays when it
// disappears from the rail, and is resolved by an entry.
func TestReconcileFindsUnknownDebits(t *testing.T) {
	onEachRail(t, func(b *books) {
		b.bill("batch", models.BehaviourPays, models.BehaviourInsufficientFunds)
		b.bill("unreadable", models.BehaviourPays)
		b.exec("UPDATE customer_links SET party = 'nonsense' WHERE customer_reference = 'unreadable/0'")
		b.reconcile()
		b.wantFindings(map[string]models.DifferenceKind{})

		stray := models.PaymentRailKey(models.PaymentIntentID(uuid.New()))
		b.plant(nobodysKey, 7)
		b.plant("no key of ours", 8)
		b.plant(stray, 9)
		b.reconcile()
		found := map[string]models.DifferenceKind{
			nobodysKey: models.DifferenceUnknown, "no key of ours": models.DifferenceUnknown,
			stray: models.DifferenceUnknown,
		}
		b.wantFindings(found)
		raised := b.alert(nobodysKey)
		b.reconcile()
		b.reconcile()
		b.wantFindings(found)
		if again := b.alert(nobodysKey); again != raised {
			b.Errorf("the alert was %+v, and is %+v", raised, again)
		}

		b.exec("DELETE FROM sandbox_debits WHERE key = ?", nobodysKey)
		for range 2 {
			b.reconcile()
			b.wantFindings(found)
			const want = "7 AUD on the rail; no row or payment has the key; the rail now says notFound"
			if got := b.alert(nobodysKey); got.Detail != want {
				b.Errorf("the alert says %q", got.Detail)
			}
		}
		b.enter(nobodysKey, 7)
		b.exec("INSERT INTO sandbox_debits (key, agreement_id, amount, currency, status, changed_at) "+
			"VALUES (?, 'planted', 7, 'AUD', 'succeeded', svc_now())", nobodysKey)
		b.reconcile()
		delete(found, nobodysKey)
		b.wantFindings(found)
	})
}

// A row or payment that ended without a debit stays a finding when the rail takes the debit back.
func TestReconcileKeepsDebitsThatTheRailTakesBack(t *testing.T) {
	onEachRail(t, func(b *books) {
		b.bill("declined", models.BehaviourDeclines)
		failed := b.pay(models.BehaviourInsufficientFunds)
		row, err := b.store.RowRailKey(b.Context(), b.site.ID, "declined", "row-0")
		if err != nil {
			b.Fatal(err)
		}
		b.exec("UPDATE sandbox_debits SET status = 'succeeded' WHERE status = 'refused'")
		b.reconcile()
		found := map[string]models.DifferenceKind{
			row: models.DifferenceUnrecorded, models.PaymentRailKey(failed.ID): models.DifferenceUnrecorded,
		}
		b.wantFindings(found)
		b.exec("UPDATE sandbox_debits SET status = 'cancelled'")
		b.reconcile()
		b.wantFindings(found)
		if got := b.alert(row).Detail; !strings.HasSuffix(got, "; the rail now says cancelled") {
			b.Errorf("the alert says %q", got)
		}
		if err := b.store.CloseAlert(b.Context(), string(models.DifferenceUnrecorded), row); err != nil {
			b.Fatal(err)
		}
		b.reconcile()
		delete(found, row)
		b.wantFindings(found)
	})
}

// A debit of a row or payment that is still open when the rail forgets is a finding. An entry
// resolves it, without the rail.
func TestReconcileEndsWhatIsInFlightForTooLong(t *testing.T) {
	onEachRail(t, func(b *books) {
		link := modelstest.Customer(b, b.store, b.site.ID, "ada", models.BehaviourPays)
		done := modelstest.Submit(b, b.store, modelstest.Batch(b.site, "batch", "ada", "ada"))
		var debits []rail.Debit
		for _, reference := range []string{"row-0", "row-1"} {
			debits = append(debits, rail.Debit{
				Key: done.Batch.RailKeys().Row(reference), AgreementID: modelstest.Agreement(link),
				Amount: 100, Currency: "AUD",
			})
		}
		railtest.Debit(b.Context(), b, b.rail, debits...)
		b.reconcile()
		if n := b.inFlight(); n != 2 {
			b.Errorf("%d debits are in flight, want 2", n)
		}
		b.reconcile() // beyond Overlap
		b.enter(debits[0].Key, 100)
		modelstest.AdvanceClock(b, b.store, models.RailMemory)
		b.run()
		b.wantFindings(map[string]models.DifferenceKind{debits[1].Key: models.DifferenceUnrecorded})
		if n := b.inFlight(); n != 0 {
			b.Errorf("%d debits are in flight", n)
		}
		b.enter(debits[1].Key, 100)
		modelstest.AdvanceClock(b, b.store, time.Hour)
		b.run()
		b.wantFindings(map[string]models.DifferenceKind{})
	})
}

// A ledger entry that the rail denies is found within one period, and resolved when the rail has
// it.
func TestReconcileFindsDeniedEntries(t *testing.T) {
	onEachRail(t, func(b *books) {
		b.bill("batch", models.BehaviourPays, models.BehaviourPays, models.BehaviourPays)
		b.pay(models.BehaviourPays)
		keys := b.ledgerKeys()
		if len(keys) != 4 {
			b.Fatalf("keys %v", keys)
		}
		b.exec("CREATE TABLE kept AS SELECT * FROM sandbox_debits")
		b.exec("DELETE FROM sandbox_debits WHERE key = ?", keys[0])
		b.exec("UPDATE sandbox_debits SET status = 'refused', reason = 'declined' WHERE key = ?", keys[1])
		b.exec("UPDATE sandbox_debits SET status = 'cancelled' WHERE key = ?", keys[2])
		b.reconcile()
		b.wantFindings(map[string]models.DifferenceKind{
			keys[0]: models.DifferenceDenied, keys[1]: models.DifferenceDenied, keys[2]: models.DifferenceDenied,
		})
		b.exec("DELETE FROM sandbox_debits")
		b.exec("INSERT INTO sandbox_debits SELECT * FROM kept")
		b.reconcile()
		b.wantFindings(map[string]models.DifferenceKind{})
	})
}

// Another amount, currency or account is found, and a debit of a row or payment that has ended
// without it.
func TestReconcileFindsOtherParticulars(t *testing.T) {
	onEachRail(t, func(b *books) {
		b.bill("batch", models.BehaviourPays, models.BehaviourPays, models.BehaviourPays)
		b.bill("declined", models.BehaviourDeclines)
		b.pay(models.BehaviourPays)
		failed := b.pay(models.BehaviourInsufficientFunds)
		keys := b.ledgerKeys()
		b.exec("UPDATE sandbox_debits SET amount = amount + 1 WHERE key = ?", keys[0])
		b.exec("UPDATE sandbox_debits SET currency = 'NZD' WHERE key = ?", keys[1])
		b.exec("UPDATE sandbox_debits SET agreement_id = 'another' WHERE key IN (?, ?)", keys[2], keys[3])
		b.exec("UPDATE sandbox_debits SET status = 'succeeded' WHERE status = 'refused'")
		b.reconcile()
		declined, err := b.store.RowRailKey(b.Context(), b.site.ID, "declined", "row-0")
		if err != nil {
			b.Fatal(err)
		}
		b.wantFindings(map[string]models.DifferenceKind{
			keys[0]: models.DifferenceParticulars, keys[1]: models.DifferenceParticulars,
			keys[2]: models.DifferenceParticulars, keys[3]: models.DifferenceParticulars,
			declined: models.DifferenceUnrecorded, models.PaymentRailKey(failed.ID): models.DifferenceUnrecorded,
		})
	})
}

// A debit of an open row or payment, whose answer was lost, is in flight until the service has
// looked it up. It is no finding, and the comparison does not wait for it.
func TestReconcileLetsOpenDebitsPass(t *testing.T) {
	onEachRail(t, func(b *books) {
		link := modelstest.Customer(b, b.store, b.site.ID, "ada", models.BehaviourPays)
		done := modelstest.Submit(b, b.store, modelstest.Batch(b.site, "batch", "ada"))
		intent := modelstest.Intent(b, b.store, b.site.ID, price, price)
		payer := modelstest.Payer(b, b.store, models.BehaviourPays)
		modelstest.Pay(b, b.store, intent, payer)
		railtest.Debit(b.Context(), b, b.rail,
			rail.Debit{
				Key: done.Batch.RailKeys().Row("row-0"), AgreementID: modelstest.Agreement(link),
				Amount: 100, Currency: "AUD",
			},
			rail.Debit{
				Key: models.PaymentRailKey(intent.ID), AgreementID: payer.AgreementID, Amount: price, Currency: "AUD",
			})
		b.reconcile()
		b.wantFindings(map[string]models.DifferenceKind{})
		if n := b.inFlight(); n != 2 {
			b.Errorf("%d debits are in flight, want 2", n)
		}
		if state, err := b.store.Reconciliation(b.Context()); err != nil || state.Lag() > period {
			b.Errorf("the reconciliation is %s behind, %v", state.Lag(), err)
		}
		b.work()
		b.reconcile()
		b.wantFindings(map[string]models.DifferenceKind{})
		if n := b.inFlight(); n != 0 || len(b.ledgerKeys()) != 2 {
			b.Errorf("%d debits are in flight, the ledger has %v", n, b.ledgerKeys())
		}
	})
}

// An operator's decision explains a difference.
func TestReconcileTrustsDecisions(t *testing.T) {
	t.Parallel()
	store, scripted := modelstest.Open(t), railtest.NewScripted()
	b := newBooks(t, store, scripted)
	scripted.SetClock(func() models.Millis { return b.now() })
	b.decideLost(scripted)
	b.reconcile()
	if len(b.ledgerKeys()) != 1 {
		t.Errorf("the ledger has %v", b.ledgerKeys())
	}
	b.wantFindings(map[string]models.DifferenceKind{})
}

// A rail without an answer stops the comparison. It changes nothing, and continues from there.
func TestReconcileWithoutTheRail(t *testing.T) {
	t.Parallel()
	store, scripted := modelstest.Open(t), railtest.NewScripted()
	b := newBooks(t, store, scripted)
	scripted.SetClock(func() models.Millis { return b.now() })
	registry := prometheus.NewRegistry()
	b.job.Metrics = NewMetrics(registry)
	b.bill("batch", models.BehaviourPays)
	b.reconcile()
	before, err := store.Reconciliation(t.Context())
	if err != nil || before.ComparedTo == 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	scripted.SetDown(true)
	b.reconcile()
	modelstest.AdvanceClock(t, store, 5*time.Hour)
	b.run()
	if after, err := store.Reconciliation(t.Context()); err != nil || after.ComparedTo != before.ComparedTo {
		t.Errorf("compared to %d, then to %d, %v", before.ComparedTo, after.ComparedTo, err)
	}
	scripted.SetDown(false)
	b.bill("later", models.BehaviourPays)
	scripted.Forget(b.ledgerKeys()[0])
	b.reconcile()
	if after, err := store.Reconciliation(t.Context()); err != nil || after.Lag() > period {
		t.Errorf("%s behind, %v", after.Lag(), err)
	}
	got := series(t, registry)
	if got["svc_reconciliation_compared_total rail"] < 2 || got["svc_reconciliation_compared_total ledger"] < 2 {
		t.Errorf("series %v", got)
	}
}

// After an outage that is longer than the rail's memory, the time without a comparison is an alert.
func TestReconcileAfterTheRailHasForgotten(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	store.SetRetention(models.Retention{SandboxRail: models.RailMemory})
	b := newBooks(t, store, rail.NewSandbox(store))
	b.bill("batch", models.BehaviourPays)
	b.reconcile()
	b.wantFindings(map[string]models.DifferenceKind{})
	modelstest.AdvanceClock(t, store, models.RailMemory+day)
	b.plant(nobodysKey, 5)
	b.run()
	b.reconcile()
	alerts, err := store.OpenAlerts(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, a := range alerts {
		kinds[a.Kind]++
	}
	if kinds[models.AlertReconciliationGap] != 1 || kinds[string(models.DifferenceUnknown)] != 1 || len(kinds) != 2 {
		t.Errorf("alerts %v", alerts)
	}
}

// Two runs at once record each step once.
func TestReconcileTwiceAtOnce(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	b := newBooks(t, store, rail.NewSandbox(store))
	b.bill("batch", models.BehaviourPays, models.BehaviourPays)
	b.plant(nobodysKey, 5)
	modelstest.AdvanceClock(t, store, period)
	done := make(chan error)
	for range 2 {
		go func() { done <- b.job.Run(t.Context(), models.Task{ID: models.TaskID(uuid.New())}) }()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	b.wantFindings(map[string]models.DifferenceKind{nobodysKey: models.DifferenceUnknown})
	if state, err := store.Reconciliation(t.Context()); err != nil || state.Lag() > period {
		t.Errorf("%s behind, %v", state.Lag(), err)
	}
}

// The comparison follows more debits and entries than a page has, and finds the few that differ.
func TestReconcileManyPages(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	b := newBooks(t, store, rail.NewSandbox(store))
	b.exec(`INSERT INTO sandbox_debits (key, agreement_id, amount, currency, status, changed_at)
SELECT 'r1_' || md5(i::text) || md5(i::text), 'agreement', 100 + i % 7, 'AUD', 'succeeded', ? + i / 3
FROM generate_series(1, 4000) i`, noon)
	for range 3 { // entries of several Sites, recorded a little later than debited
		modelstest.Site(t, store)
	}
	b.exec(`
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
    customer_reference)
SELECT d.key, s.id, d.changed_at + 400, d.amount, 'AUD', 'b', 'r', 'c'
FROM (SELECT *, row_number() OVER (ORDER BY changed_at, key) AS n FROM sandbox_debits) d
JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS m FROM sites) s ON s.m = d.n % 4`)
	var missing, extra, other string
	for _, change := range []struct {
		into  *string
		query string
	}{
		{&missing, `DELETE FROM ledger_entries WHERE rail_key = (SELECT max(rail_key) FROM ledger_entries)
RETURNING rail_key`},
		{&extra, "DELETE FROM sandbox_debits WHERE key = (SELECT min(key) FROM sandbox_debits) RETURNING key"},
		{&other, `UPDATE ledger_entries SET amount = 1
WHERE rail_key = (SELECT rail_key FROM ledger_entries OFFSET 900 LIMIT 1) RETURNING rail_key`},
	} {
		if err := store.DB().NewRaw(change.query).Scan(t.Context(), change.into); err != nil {
			t.Fatal(err)
		}
	}
	modelstest.AdvanceClock(t, store, time.Hour)
	b.run()
	b.wantFindings(map[string]models.DifferenceKind{
		missing: models.DifferenceUnknown, extra: models.DifferenceDenied, other: models.DifferenceParticulars,
	})
}
