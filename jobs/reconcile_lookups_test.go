package jobs

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// countingRail is a rail that notes the most keys of one look-up.
type countingRail struct {
	rail.Rail
	most int
}

// Lookup implements rail.Rail.
func (c *countingRail) Lookup(ctx context.Context, keys []string, report func(int, rail.Result)) {
	c.most = max(c.most, len(keys))
	c.Rail.Lookup(ctx, keys, report)
}

// A comparison that looks up many keys has few look-ups in flight, so that debits find capacity.
func TestReconcileBoundsItsLookups(t *testing.T) {
	t.Parallel()
	store, scripted := modelstest.Open(t), railtest.NewScripted()
	r := &countingRail{Rail: scripted}
	b := newBooks(t, store, r)
	scripted.SetClock(func() models.Millis { return b.now() })
	for i := range 3 * lookups {
		b.enter(strings.Replace(nobodysKey, "r1_0", "r1_"+strconv.Itoa(i), 1), 100)
	}
	b.reconcile()
	if r.most != lookups {
		t.Errorf("%d look-ups in flight, want %d", r.most, lookups)
	}
}
