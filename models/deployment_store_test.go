package models_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestDeploymentIsRemembered(t *testing.T) {
	t.Parallel()
	type d = models.Deployment
	sandbox, http := d{Environment: "sandbox", Rail: "sandbox"}, d{Environment: "sandbox", Rail: "http", RailID: "a"}
	for name, c := range map[string]struct {
		joins []d
		want  d    // that the last join returns
		err   bool // that it fails with
	}{
		"first": {[]d{sandbox}, sandbox, false},
		"again": {[]d{http, http}, http, false},
		"other environment": {[]d{{Environment: "sandbox"}, {Environment: "production"}}, d{Environment: "sandbox"},
			true},
		"other, back": {[]d{{Environment: "production"}, {Environment: "sandbox"}}, d{Environment: "production"},
			true},
		"other adapter":       {[]d{sandbox, http}, sandbox, true},
		"other rail":          {[]d{http, {Environment: "sandbox", Rail: "http", RailID: "b"}}, http, true},
		"rail without a name": {[]d{http, {Environment: "sandbox", Rail: "http"}}, http, true},
		"no rail":             {[]d{http, {Environment: "sandbox"}}, http, false},
		"rail comes later":    {[]d{{Environment: "sandbox"}, http}, http, false},
		"rail came later":     {[]d{{Environment: "sandbox"}, http, sandbox}, http, true},
		"loopback stays": {[]d{{Environment: "sandbox", WebhookLoopback: true}, {Environment: "sandbox"}},
			d{Environment: "sandbox", WebhookLoopback: true}, false},
		"loopback comes later": {[]d{sandbox, {Environment: "sandbox", WebhookLoopback: true}},
			d{Environment: "sandbox", Rail: "sandbox", WebhookLoopback: true}, false},
		"refused without effect": {[]d{sandbox, {Environment: "sandbox", Rail: "http", WebhookLoopback: true}}, sandbox,
			true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			if _, err := store.Deployment(t.Context()); !errors.Is(err, models.ErrNotFound) {
				t.Errorf("before the first: %v", err)
			}
			var got d
			var err error
			for _, own := range c.joins {
				got, err = store.JoinDeployment(t.Context(), own)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || errors.Is(err, models.ErrOtherDeployment) != c.err ||
				!c.err &&
					err != nil {
				t.Errorf("%v, %s", err, diff)
			}
			if stored, err := store.Deployment(t.Context()); err != nil || stored != c.want {
				t.Errorf("stored %+v, %v", stored, err)
			}
		})
	}
}

// Two first processes at once: one decides.
func TestFirstProcessesAtOnce(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			own := models.Deployment{Environment: []models.Environment{"sandbox", "production"}[i%2]}
			_, errs[i] = store.JoinDeployment(t.Context(), own)
		})
	}
	wg.Wait()
	joined := 0
	for i, err := range errs {
		if err == nil {
			joined++
		} else if !errors.Is(err, models.ErrOtherDeployment) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if joined != len(errs)/2 {
		t.Errorf("%d of %d have joined", joined, len(errs))
	}
}

// The rail is replaced only while the old one has nothing more to say.
func TestRailIsNotReplacedInDoubt(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	if err := store.ReplaceRail(t.Context(), "http", "b"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("before the first process: %v", err)
	}
	_, err := store.JoinDeployment(t.Context(), models.Deployment{Environment: "sandbox", Rail: "http", RailID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	site := modelstest.Site(t, store)
	modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "bob"))
	replace := func(id string, want error) {
		t.Helper()
		if err := store.ReplaceRail(t.Context(), "http", id); !errors.Is(err, want) || err != nil && want == nil {
			t.Errorf("%s: %v, want %v", id, err, want)
		}
	}
	set := func(query string) {
		t.Helper()
		if _, err := store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	of := models.Difference{RailKey: "key", Kind: models.DifferenceInFlight}
	moved, err := store.RecordComparison(t.Context(), models.Comparison{To: 5, Found: []models.Difference{of}})
	if err != nil || !moved {
		t.Fatal(moved, err)
	}
	replace("b", nil) // nothing was begun
	state, err := store.Reconciliation(t.Context())
	if err != nil || state.Since == 0 || state.ComparedTo != state.Since || state.InFlight != 0 {
		t.Errorf("the reconciliation with the new rail begins as %+v, %v", state, err)
	}
	set("UPDATE batch_rows SET state = 'inProgress' WHERE row_index = 0")
	replace("c", models.ErrInDoubt)
	set(
		"UPDATE batch_rows SET state = 'settled', outcome = 'unconfirmed', settled_at = 1, in_doubt = true WHERE row_index = 0")
	replace("c", models.ErrInDoubt)
	set("UPDATE batch_rows SET in_doubt = false WHERE row_index = 0")
	replace("c", nil)
	if d, err := store.Deployment(t.Context()); err != nil || d.RailID != "c" {
		t.Errorf("%+v, %v", d, err)
	}
	set("UPDATE batch_rows SET attempts = 1 WHERE row_index = 1") // the rail was unavailable
	replace("d", models.ErrInDoubt)
	set("UPDATE batch_rows SET attempts = 0 WHERE row_index = 1")

	// After a loss, rows may have been debited that nothing here knows of, and lost batches may
	// come again.
	if _, err := store.BeginEpoch(t.Context()); err != nil {
		t.Fatal(err)
	}
	replace("d", models.ErrInDoubt)
	if _, err := store.ResumeRestored(t.Context()); err != nil {
		t.Fatal(err)
	}
	replace("d", models.ErrInDoubt)
	modelstest.AdvanceClock(t, store, models.RailMemory)
	replace("d", models.ErrInDoubt) // a batch is open from before the loss
	set("UPDATE batches SET epoch = 2")
	replace("d", nil)
}
