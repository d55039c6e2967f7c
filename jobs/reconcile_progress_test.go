package jobs

import (
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/reconcile"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// hurry makes each run use its budget as soon as it may: more time passes at each reading of the
// clock than between all earlier ones.
func (b *books) hurry() {
	now, step := noon.Time(), time.Hour
	b.job.Now = func() time.Time {
		now, step = now.Add(step), 3*step
		return now
	}
}

// runToEnd runs the task until nothing is left to compare. Every run must make progress. It returns
// the number of runs, and calls after each.
func (b *books) runToEnd(each func()) (runs int) {
	b.Helper()
	for {
		before := b.state()
		b.hurry()
		b.run()
		runs++
		after := b.state()
		each()
		if after.Lag() <= period {
			return runs
		}
		if after.ComparedTo <= before.ComparedTo {
			b.Fatalf("run %d has compared to %d, the one before it to %d", runs, after.ComparedTo, before.ComparedTo)
		}
	}
}

func (b *books) state() models.Reconciliation {
	b.Helper()
	state, err := b.store.Reconciliation(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return state
}

// count returns the number that a query selects.
func (b *books) count(query string) (n int) {
	b.Helper()
	if err := b.store.DB().NewRaw(query).Scan(b.Context(), &n); err != nil {
		b.Fatal(err)
	}
	return n
}

// A run reads again what was debited within Overlap and Skew. Many debits within that time do not
// keep a run with a small budget from going on.
func TestReconcileAdvancesPastABusyTime(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	b := newBooks(t, store, rail.NewSandbox(store))
	b.reconcile()
	b.exec(`
INSERT INTO sandbox_debits (key, agreement_id, amount, currency, status, changed_at)
SELECT 'r1_' || md5(i::text) || md5(i::text), 'agreement', 100, 'AUD', 'succeeded', svc_now() + i * 40
FROM generate_series(1, 6000) i`)
	b.exec(`
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
    customer_reference)
SELECT key, ?, changed_at + 400, amount, currency, 'b', 'r', 'c' FROM sandbox_debits
WHERE key <> (SELECT max(key) FROM sandbox_debits)`, b.site.ID)
	modelstest.AdvanceClock(t, store, 10*time.Minute)
	runs := b.runToEnd(func() {})
	if found := b.count("SELECT count(*) FROM reconciliation_differences"); runs < 3 || found != 1 {
		t.Errorf("%d runs have found %d differences, want several, and 1", runs, found)
	}
}

// A rail that lost all its debits makes every entry a look-up. The findings are recorded step by
// step, in runs with a small budget that go on from each other.
func TestReconcileWithARailThatLostEverything(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	b := newBooks(t, store, rail.NewSandbox(store))
	b.reconcile()
	modelstest.Site(t, store)
	// The last 700 entries have the same millisecond.
	b.exec(`
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
    customer_reference)
SELECT 'r1_' || md5(i::text) || md5(i::text), s.id, svc_now() + least(i, 900) * 1000, 100, 'AUD', 'b', 'r', 'c'
FROM generate_series(1, 1600) i
JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS m FROM sites) s ON s.m = i % 2`)
	modelstest.AdvanceClock(t, store, time.Hour)

	from, steps := b.state().ComparedTo, 0
	err := b.job.Comparer.Compare(t.Context(), from, b.now(), func(step reconcile.Step) error {
		if steps++; len(step.Differences) > 100 {
			t.Errorf("step %d has %d differences", steps, len(step.Differences))
		}
		return nil
	})
	if err != nil || steps < 16 {
		t.Errorf("%d steps, %v", steps, err)
	}

	found := []int{0}
	runs := b.runToEnd(func() {
		found = append(found, b.count("SELECT count(*) FROM alerts WHERE kind = 'ledgerEntryDenied'"))
	})
	if runs < 2 || found[1] == 0 || found[1] == 1600 || found[runs] != 1600 {
		t.Errorf("%d runs, findings after each %v", runs, found)
	}
}
