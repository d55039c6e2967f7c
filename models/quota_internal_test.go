package models

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// gauged is a gauge of one organisation with a stored usage and a clock that the test sets.
type gauged struct {
	*quotaGauge
	organisation OrganisationID
	stored       atomic.Int64
	readings     atomic.Int64
	elapsed      atomic.Int64
	fail         atomic.Bool
	hold         chan struct{} // nil: readings end at once. Else each waits for an element
	begun        chan struct{} // gets an element when a held reading begins
}

func newGauged(limit int64) *gauged {
	g := &gauged{organisation: NewID[organisationNoun](), begun: make(chan struct{}, 100)}
	now := func() time.Time { return time.Unix(0, 0).Add(time.Duration(g.elapsed.Load())) }
	g.quotaGauge = newQuotaGauge(QuotaOpenRows, limit, time.Second, now,
		func(ctx context.Context, of OrganisationID) (int64, error) {
			g.readings.Add(1)
			used := g.stored.Load()
			if g.hold != nil {
				g.begun <- struct{}{}
				select {
				case <-g.hold:
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
			if g.fail.Load() || of != g.organisation {
				return 0, errors.New("cannot be read")
			}
			return used, nil
		})
	return g
}

func (g *gauged) pass(d time.Duration) { g.elapsed.Add(int64(d)) }

// try reserves n, and reports whether the quota allowed it.
func (g *gauged) try(t interface{ Fatal(...any) }, n int64) (*quotaReservation, bool) {
	admitted, err := g.reserve(context.Background(), g.organisation, n)
	var refused *QuotaError
	if err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
	return admitted, err == nil
}

// store reserves and stores n, and reports whether the quota allowed it.
func (g *gauged) store(t interface{ Fatal(...any) }, n int64) bool {
	admitted, ok := g.try(t, n)
	if ok {
		g.stored.Add(n)
		admitted.done(n)
	}
	return ok
}

func TestQuotaBoundsConcurrentAdmissions(t *testing.T) {
	t.Parallel()
	g := newGauged(20)
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			a, ok := g.try(t, 1)
			switch {
			case !ok:
				refused.Add(1)
			case i%2 == 0: // it fails, and releases its reservation
				a.done(0)
			default:
				admitted.Add(1)
				a.done(1)
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n > 20 || g.readings.Load() != 1 {
		t.Errorf("admitted %d after %d readings", n, g.readings.Load())
	}
	for range 20 - admitted.Load() {
		if _, ok := g.try(t, 1); !ok {
			t.Error("what was released is still reserved")
		}
	}
	if _, ok := g.try(t, 1); ok {
		t.Error("admitted more than the quota")
	}
}

// Usage is read again after a second while more than half of the quota is used, else after ten
// seconds.
func TestQuotaUsageAges(t *testing.T) {
	t.Parallel()
	g := newGauged(10)
	want := func(readings int64) {
		t.Helper()
		if n := g.readings.Load(); n != readings {
			t.Errorf("%d readings, want %d", n, readings)
		}
	}
	g.store(t, 5)
	want(1)
	g.pass(quotaFreshLow - 1)
	g.stored.Store(10) // other processes store something
	if !g.store(t, 0) {
		t.Error("a fresh usage is not used")
	}
	want(1)
	g.pass(1)
	if g.store(t, 1) {
		t.Error("does not see what others have stored")
	}
	want(2)
	g.stored.Store(9)
	g.pass(quotaFresh - 1)
	if g.store(t, 1) {
		t.Error("read anew too soon")
	}
	g.pass(1)
	if !g.store(t, 1) || g.store(t, 1) {
		t.Error("does not see that usage fell")
	}
	want(3)
}

// While one caller reads, the old usage admits others. Callers that it does not admit wait for the
// reading.
func TestQuotaReadingDelaysOneCaller(t *testing.T) {
	t.Parallel()
	g := newGauged(10)
	g.hold = make(chan struct{})
	results := make(chan bool, 2)
	for range 2 {
		go func() { results <- g.store(t, 5) }()
	}
	<-g.begun
	left, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.reserve(left, g.organisation, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left: %v", err)
	}
	g.hold <- struct{}{}
	first, second := <-results, <-results
	if !first || !second || g.readings.Load() != 1 {
		t.Errorf("admitted %t and %t after %d readings", first, second, g.readings.Load())
	}
	g.pass(quotaFresh)
	g.stored.Store(8)
	for range 2 {
		go func() { results <- g.store(t, 1) }()
	}
	<-g.begun // one reads 8, and the other waits, as the old usage is 10
	g.hold <- struct{}{}
	first, second = <-results, <-results
	if !first || !second || g.readings.Load() != 2 {
		t.Errorf("admitted %t and %t after %d readings", first, second, g.readings.Load())
	}
	g.pass(quotaFresh)
	g.stored.Store(7)
	go func() { results <- g.store(t, 1) }()
	<-g.begun
	g.hold <- struct{}{}
	if !<-results {
		t.Error("refused below the quota")
	}
	g.pass(quotaFresh)
	go func() { results <- g.store(t, 1) }()
	<-g.begun // it reads 8, as the old usage is
	if !g.store(t, 1) {
		t.Error("waits though the old usage admits it")
	}
	g.hold <- struct{}{}
	if !<-results {
		t.Error("refused below the quota")
	}
}

// A reservation that is pending during a reading counts, whether or not the reading includes it.
func TestQuotaReadingCountsWhatIsPending(t *testing.T) {
	t.Parallel()
	g := newGauged(10)
	before, _ := g.try(t, 4)
	failing, _ := g.try(t, 2)
	g.pass(quotaFresh)
	g.hold = make(chan struct{})
	result := make(chan bool)
	go func() { result <- g.store(t, 4) }()
	<-g.begun                           // it reads 0
	if during, ok := g.try(t, 4); !ok { // the old usage is 6
		t.Error("refused below the quota")
	} else {
		g.stored.Add(4)
		during.done(4)
	}
	g.stored.Add(4)
	before.done(4)
	failing.done(0)
	g.hold <- struct{}{}
	if <-result {
		t.Error("admitted 12 of 10")
	}
	g.hold = nil
	if !g.store(t, 2) || g.store(t, 1) {
		t.Error("what failed is not released, or more than that")
	}
}

// While no reading has succeeded, only reservations count. A failed reading is not repeated at
// once, and leaves the usage of an earlier reading in force.
func TestQuotaThatCannotBeRead(t *testing.T) {
	t.Parallel()
	g := newGauged(10)
	g.fail.Store(true)
	for range 3 {
		if !g.store(t, 3) {
			t.Error("refused without a usage")
		}
	}
	if n := g.readings.Load(); n != 1 {
		t.Errorf("%d readings", n)
	}
	g.fail.Store(false)
	g.pass(quotaFreshLow)
	g.stored.Store(10)
	if g.store(t, 1) {
		t.Error("does not see usage that can be read again")
	}
	g.fail.Store(true)
	g.pass(quotaFreshLow)
	if g.store(t, 1) {
		t.Error("forgets the old usage")
	}
}

func TestNoQuotaReadsNothing(t *testing.T) {
	t.Parallel()
	g := newGauged(0)
	if !g.store(t, 1<<40) || g.readings.Load() != 0 {
		t.Error("no quota refuses or reads something")
	}
	g = newGauged(1)
	if _, err := g.reserve(t.Context(), OrganisationID{}, 5); err != nil || g.readings.Load() != 0 {
		t.Errorf("of no organisation: %v", err)
	}
}

// One process alone never exceeds a quota.
func TestQuotaOfOneProcess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.Int64Range(1, 12).Draw(r, "limit")
		g := newGauged(limit)
		var open []*quotaReservation
		var pending int64
		r.Repeat(map[string]func(*rapid.T){
			"reserve": func(r *rapid.T) {
				n := rapid.Int64Range(1, 5).Draw(r, "n")
				a, ok := g.try(r, n)
				if ok {
					open, pending = append(open, a), pending+n
				}
				if ok && g.stored.Load()+pending > limit {
					r.Fatalf("%d stored and %d pending of %d", g.stored.Load(), pending, limit)
				}
			},
			"end": func(r *rapid.T) {
				if len(open) == 0 {
					r.Skip("nothing is open")
				}
				a := open[0]
				open, pending = open[1:], pending-a.amount
				n := rapid.SampledFrom([]int64{0, a.amount}).Draw(r, "stored")
				g.stored.Add(n)
				a.done(n)
			},
			"others release": func(*rapid.T) { g.stored.Store(g.stored.Load() / 2) },
			"time passes":    func(*rapid.T) { g.pass(quotaFresh) },
			"": func(r *rapid.T) {
				if usage, ok := g.usages.Get(g.organisation); ok && usage.pending != pending {
					r.Fatalf("%d pending, want %d", usage.pending, pending)
				}
			},
		})
	})
}
