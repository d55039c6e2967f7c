package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const patience = 500 * time.Millisecond

// admitting runs a test of an admission in time of its own, which passes when everybody waits.
func admitting(t *testing.T, slots int, test func(*testing.T, *admission)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(slots, patience, prometheus.NewRegistry())
		test(t, a)
		synctest.Wait()
		if running, waiting := figures(a); running != 0 || waiting != 0 {
			t.Errorf("at the end %d run and %d wait", running, waiting)
		}
	})
}

// figures are how many run and wait.
func figures(a *admission) (running, waiting int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.waiting()
}

// crowd are waiters, and the order in which they had their turns.
type crowd struct {
	a     *admission
	turns []string // no lock: one slot
}

// join has one more wait, behind those that wait already.
func (c *crowd) join(ctx context.Context, name string, resumes bool) {
	go func() {
		if err := c.a.take(ctx, resumes); err != nil {
			c.turns = append(c.turns, name+": "+err.Error())
			return
		}
		c.turns = append(c.turns, name)
		c.a.give(0)
	}()
	synctest.Wait()
}

func (c *crowd) want(t *testing.T, turns ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(c.turns, turns) {
		t.Errorf("the turns were %q, want %q", c.turns, turns)
	}
}

func mustTake(t *testing.T, a *admission) {
	t.Helper()
	if err := a.take(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

func TestAdmissionServesInOrder(t *testing.T) {
	admitting(t, 1, func(t *testing.T, a *admission) {
		c := &crowd{a: a}
		mustTake(t, a)
		c.join(t.Context(), "first", false)
		c.join(t.Context(), "second", false)
		c.join(t.Context(), "begun before", true)
		c.join(t.Context(), "third", false)
		c.join(t.Context(), "begun before, too", true)
		c.want(t)
		a.give(0)
		c.want(t, "begun before", "begun before, too", "first", "second", "third")
	})
}

// Held requests look again and again, and first. However many there are, others have a turn in time.
func TestAdmissionStarvesNobodyForHeldRequests(t *testing.T) {
	admitting(t, 1, func(t *testing.T, a *admission) {
		c := &crowd{a: a}
		mustTake(t, a)
		c.join(t.Context(), "new", false)
		for range 2 * freshEvery {
			c.join(t.Context(), "held", true)
		}
		a.give(0)
		synctest.Wait()
		if at := slices.Index(c.turns, "new"); at < 0 || at >= freshEvery || len(c.turns) != 2*freshEvery+1 {
			t.Errorf("the turns were %q", c.turns)
		}
	})
}

func TestAdmissionGivesUpInTime(t *testing.T) {
	admitting(t, 1, func(t *testing.T, a *admission) {
		for _, resumes := range []bool{false, true} {
			mustTake(t, a)
			began := time.Now()
			err := a.take(t.Context(), resumes)
			if waited := time.Since(began); !errors.Is(err, errBusy) || waited != patience {
				t.Errorf("%v after %s", err, waited)
			}
			a.give(0)
			mustTake(t, a) // its place has not been kept
			a.give(0)
		}
	})
}

func TestAdmissionForgetsWhoGoesAway(t *testing.T) {
	admitting(t, 1, func(t *testing.T, a *admission) {
		c := &crowd{a: a}
		ctx, goAway := context.WithCancel(t.Context())
		mustTake(t, a)
		c.join(t.Context(), "first", false)
		c.join(ctx, "second", false)
		c.join(t.Context(), "third", false)
		goAway()
		c.want(t, "second: context canceled")
		if _, waiting := figures(a); waiting != 2 {
			t.Errorf("%d wait", waiting)
		}
		a.give(0)
		c.want(t, "second: context canceled", "first", "third")
	})
}

// Who is called in the moment in which its time ends keeps the slot: else nobody would have it.
func TestAdmissionLosesNoSlot(t *testing.T) {
	admitting(t, 1, func(t *testing.T, a *admission) {
		ended, end := context.WithCancel(t.Context())
		end()
		for range 50 { // select takes either way
			mustTake(t, a)
			w, err := a.join(time.Now(), false)
			if err != nil {
				t.Fatal(err)
			}
			a.give(0)
			if err := a.await(ended, w); err != nil {
				t.Fatal(err)
			}
			a.give(0)
		}
	})
}

// Nobody waits in vain: at the pace of late, one more would have waited for too long.
func TestAdmissionRefusesAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slots int
		pace  time.Duration
		wait  int // so many
	}{
		{"slow", 1, 100 * time.Millisecond, 5},
		{"slower than anybody waits", 1, time.Second, 0},
		{"two slots", 2, 100 * time.Millisecond, 10},
		{"fast", 2, time.Microsecond, 2 * waitersPerSlot},
		{"nothing is known yet", 1, 0, waitersPerSlot},
	} {
		t.Run(tt.name, func(t *testing.T) {
			admitting(t, tt.slots, func(t *testing.T, a *admission) {
				ctx, leave := context.WithCancel(t.Context())
				a.pace = tt.pace
				for range tt.slots {
					mustTake(t, a)
				}
				for range tt.wait {
					go func() { _ = a.take(ctx, false) }()
				}
				synctest.Wait()
				began := time.Now()
				if err := a.take(ctx, false); !errors.Is(err, errBusy) || time.Since(began) > 0 {
					t.Errorf("one more: %v after %s", err, time.Since(began))
				}
				if _, waiting := figures(a); waiting != tt.wait {
					t.Errorf("%d wait, want %d", waiting, tt.wait)
				}
				leave()
				synctest.Wait()
				for range tt.slots {
					a.give(0)
				}
			})
		})
	}
}

// A crowd that lasts is no burst: then the line is short.
func TestAdmissionKeepsALastingLineShort(t *testing.T) {
	for _, tt := range []struct {
		name           string
		pace           time.Duration
		lasting, burst int // so many wait
	}{
		{"fast", 10 * time.Millisecond, 5, 32},
		{"slow", 100 * time.Millisecond, 1, 5}, // and no less than one for each slot
	} {
		t.Run(tt.name, func(t *testing.T) { testLastingLine(t, tt.pace, tt.lasting, tt.burst) })
	}
}

func testLastingLine(t *testing.T, pace time.Duration, lasting, burst int) {
	t.Helper()
	admitting(t, 1, func(t *testing.T, a *admission) {
		ctx, leave := context.WithCancel(t.Context())
		a.pace = pace
		mustTake(t, a)
		for range 2 { // the second one comes before the first one gives up
			go func() { _ = a.take(ctx, false) }()
			<-time.After(patience * 3 / 4)
		}
		for range 4 {
			go func() { _ = a.take(ctx, false) }()
		}
		synctest.Wait()
		if _, waiting := figures(a); waiting != lasting {
			t.Errorf("%d wait, want %d", waiting, lasting)
		}
		if err := a.take(ctx, false); !errors.Is(err, errBusy) {
			t.Errorf("one more: %v", err)
		}
		leave()
		synctest.Wait()
		for range 40 { // a burst after it
			go func() { _ = a.take(t.Context(), false) }()
		}
		synctest.Wait()
		if _, waiting := figures(a); waiting != burst {
			t.Errorf("%d wait in a burst, want %d", waiting, burst)
		}
		<-time.After(2 * patience) // in which they give up
		a.give(0)
	})
}

func TestAdmissionLearnsThePace(t *testing.T) {
	admitting(t, 1, func(t *testing.T, a *admission) {
		for range 300 {
			mustTake(t, a)
			a.give(80 * time.Millisecond)
		}
		if a.pace < 79*time.Millisecond || a.pace > 80*time.Millisecond {
			t.Errorf("pace %s", a.pace)
		}
	})
}

// However many come, no more run at once than may, and everybody is answered.
func TestAdmissionHoldsItsBound(t *testing.T) {
	const slots, callers = 3, 500
	admitting(t, slots, func(t *testing.T, a *admission) {
		var mu sync.Mutex
		var group sync.WaitGroup
		running, most, served, refused := 0, 0, 0, 0
		for i := range callers {
			group.Go(func() {
				<-time.After(time.Duration(i%50) * time.Millisecond)
				held := slot{of: a}
				err := held.take(t.Context(), i%7 == 0)
				mu.Lock()
				if err == nil {
					served, running = served+1, running+1
					most = max(most, running)
				} else {
					refused++
				}
				mu.Unlock()
				if err != nil {
					return
				}
				<-time.After(10 * time.Millisecond)
				mu.Lock()
				running--
				mu.Unlock()
				held.give()
				held.give() // a second time changes nothing
			})
		}
		group.Wait()
		if most != slots || served+refused != callers || refused == 0 || served < slots*int(patience/(10*time.Millisecond))/2 {
			t.Errorf("%d ran at once, %d were served, %d refused", most, served, refused)
		}
	})
}

func TestAdmissionWithoutABound(t *testing.T) {
	admitting(t, 0, func(t *testing.T, a *admission) {
		for range 1000 {
			mustTake(t, a)
		}
		for range 1000 {
			a.give(time.Hour)
		}
	})
}
