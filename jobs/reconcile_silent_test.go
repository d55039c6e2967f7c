package jobs

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// silentRail is a rail that never answers look-ups of some keys.
type silentRail struct {
	rail.Rail
	silent  []string
	all     bool // it answers no look-up
	most    int  // number of keys of the largest look-up
	bounded bool // it looks up at most remain more keys
	remain  int
}

// newSilentBooks returns books whose rail is a silentRail, around a scripted one.
func newSilentBooks(t *testing.T) (*books, *silentRail, *railtest.Scripted) {
	store, scripted := modelstest.Open(t), railtest.NewScripted()
	r := &silentRail{Rail: scripted}
	b := newBooks(t, store, r)
	scripted.SetClock(func() models.Millis { return b.now() })
	return b, r, scripted
}

// Admit implements rail.Rail.
func (s *silentRail) Admit(ctx context.Context, organisation models.OrganisationID, n int) int {
	if s.bounded {
		n = min(n, s.remain)
	}
	if n == 0 {
		return 0
	}
	return s.Rail.Admit(ctx, organisation, n)
}

// Lookup implements rail.Rail.
func (s *silentRail) Lookup(ctx context.Context, keys []string, report func(int, rail.Result)) {
	s.most = max(s.most, len(keys))
	s.remain -= len(keys)
	s.Rail.Lookup(ctx, keys, func(i int, r rail.Result) {
		if s.all || slices.Contains(s.silent, keys[i]) {
			r = rail.Result{Status: rail.Unknown, Detail: "no answer"}
		}
		report(i, r)
	})
}

// An entry that the rail has never answered about is in flight until the rail may have forgotten
// its debit. Then it is a finding, unless an operator's decision explains it.
func TestReconcileFindsEntriesThatTheRailNeverConfirms(t *testing.T) {
	t.Parallel()
	b, r, scripted := newSilentBooks(t)
	b.decideLost(scripted)
	denied := strings.Replace(nobodysKey, "r1_0", "r1_1", 1)
	r.silent = append(b.ledgerKeys(), nobodysKey)
	b.enter(nobodysKey, 100)
	b.enter(denied, 100)
	b.reconcile()
	b.wantFindings(map[string]models.DifferenceKind{denied: models.DifferenceDenied})
	if n := b.inFlight(); n != 2 {
		t.Errorf("%d entries are in flight, want 2", n)
	}
	modelstest.AdvanceClock(t, b.store, models.RailMemory)
	b.run()
	b.wantFindings(map[string]models.DifferenceKind{
		denied: models.DifferenceDenied, nobodysKey: models.DifferenceDenied,
	})
	if n := b.inFlight(); n != 0 {
		t.Errorf("%d entries are in flight", n)
	}
}

// Keys that the rail cannot answer about do not hold up the comparison, even if it asks about no
// others. Their entries are in flight.
func TestReconcilePassesKeysWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b, r, _ := newSilentBooks(t)
	other := strings.Replace(nobodysKey, "r1_0", "r1_1", 1)
	r.silent = []string{nobodysKey, other}
	b.enter(nobodysKey, 100)
	b.reconcile()
	b.enter(other, 100)
	for range 2 {
		b.reconcile()
		if lag := b.state().Lag(); lag > period {
			t.Errorf("the reconciliation is %s behind", lag)
		}
	}
	if n := b.inFlight(); n != 2 {
		t.Errorf("%d entries are in flight, want 2", n)
	}
	r.silent = nil
	b.reconcile()
	b.wantFindings(map[string]models.DifferenceKind{
		nobodysKey: models.DifferenceDenied, other: models.DifferenceDenied,
	})
}

// A rail that answers no look-up stops the comparison. Differences that are older than the rail's
// memory are checked all the same: they need no answer.
func TestReconcileChecksAgedDifferencesWithoutTheRail(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*silentRail, *railtest.Scripted){
		"no look-up": func(r *silentRail, _ *railtest.Scripted) { r.all = true },
		"no answer":  func(_ *silentRail, s *railtest.Scripted) { s.SetDown(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r, scripted := newSilentBooks(t)
			r.silent = []string{nobodysKey}
			b.enter(nobodysKey, 100)
			b.reconcile()
			modelstest.AdvanceClock(t, b.store, models.RailMemory-day)
			b.run()
			recent := strings.Replace(nobodysKey, "r1_0", "r1_1", 1)
			r.silent = append(r.silent, recent)
			b.enter(recent, 100)
			b.reconcile()
			if n := b.inFlight(); n != 2 {
				t.Errorf("%d entries are in flight, want 2", n)
			}
			before := b.state().ComparedTo

			fail(r, scripted)
			b.enter(strings.Replace(nobodysKey, "r1_0", "r1_2", 1), 100)
			modelstest.AdvanceClock(t, b.store, day)
			b.run()
			if after := b.state().ComparedTo; after != before {
				t.Errorf("compared to %d, then to %d", before, after)
			}
			b.wantFindings(map[string]models.DifferenceKind{nobodysKey: models.DifferenceDenied})
			if n := b.inFlight(); n != 1 {
				t.Errorf("%d entries are in flight, want the recent one", n)
			}
		})
	}
}

// A comparison that looks up many keys has few look-ups in flight, so that debits find capacity.
func TestReconcileBoundsItsLookups(t *testing.T) {
	t.Parallel()
	b, r, _ := newSilentBooks(t)
	for i := range 3 * lookups {
		b.enter(strings.Replace(nobodysKey, "r1_0", "r1_"+strconv.Itoa(i), 1), 100)
	}
	b.reconcile()
	if r.most != lookups {
		t.Errorf("%d look-ups in flight, want %d", r.most, lookups)
	}
}

// A run that has time for few look-ups compares a part of the entries. The next run goes on from
// there.
func TestReconcileGoesOnHoweverSlowLookupsAre(t *testing.T) {
	t.Parallel()
	b, r, _ := newSilentBooks(t)
	b.exec(`
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
    customer_reference)
SELECT 'r1_' || lpad(n::text, 64, '0'), ?, svc_now() + n, 100, 'AUD', 'b', 'r', 'c' FROM generate_series(1, 300) AS n`,
		b.site.ID)
	modelstest.AdvanceClock(t, b.store, period)
	r.bounded = true
	compared := b.state().ComparedTo
	for runs := 1; b.state().Lag() > period; runs++ {
		r.remain = 100
		b.run()
		if now := b.state().ComparedTo; now <= compared {
			t.Fatalf("run %d compared up to %d, as the run before", runs, now)
		} else {
			compared = now
		}
	}
}
