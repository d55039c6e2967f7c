package api

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const testWaitLimit = 500 * time.Millisecond

// testAdmission runs a test of an admission in a synctest bubble, where time passes when all
// goroutines wait.
func testAdmission(t *testing.T, slots int, test func(*testing.T, *admission)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(slots, testWaitLimit, prometheus.NewRegistry())
		test(t, a)
		synctest.Wait()
		if running, queued := counts(a); running != 0 || queued != 0 {
			t.Errorf("at the end %d run and %d queue", running, queued)
		}
	})
}

// counts returns the numbers of running and queued requests.
func counts(a *admission) (running, queued int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.queued
}

// callers starts requests and records the order in which they acquire the one slot.
type callers struct {
	a      *admission
	served []string // written only by the holder of the slot
}

// queue starts a request that queues behind the earlier ones.
func (c *callers) queue(ctx context.Context, name string, resumes bool) {
	c.queueBy(ctx, caller{}, name, resumes)
}

// queueBy is queue for a caller.
func (c *callers) queueBy(ctx context.Context, by caller, name string, resumes bool) {
	go func() {
		if err := c.a.acquire(ctx, by, resumes); err != nil {
			c.served = append(c.served, name+": "+err.Error())
			return
		}
		c.served = append(c.served, name)
		c.a.release(by, 0)
	}()
	synctest.Wait()
}

func (c *callers) want(t *testing.T, served ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(c.served, served) {
		t.Errorf("served %q, want %q", c.served, served)
	}
}

func mustAcquire(t *testing.T, a *admission) {
	t.Helper()
	if err := a.acquire(t.Context(), caller{}, false); err != nil {
		t.Fatal(err)
	}
}

func TestAdmissionKnowsActiveCallers(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		request := func(by caller) {
			if err := a.acquire(t.Context(), by, false); err != nil {
				t.Fatal(err)
			}
			a.release(by, 0)
		}
		want := func(by caller, others bool) {
			t.Helper()
			if a.hasOthers(by) != others {
				t.Errorf("hasOthers(%v) is %t", by, !others)
			}
		}
		ada, bob := caller{group: 1}, caller{group: 2}
		want(ada, false)
		request(ada)
		want(ada, false)
		want(bob, true)
		<-time.After(activeTime + time.Millisecond)
		want(bob, false)
		request(bob)
		want(ada, true) // also long after ada's own request
		want(bob, false)
		request(ada)
		want(bob, true)
	})
}

func TestAdmissionServesInOrder(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		c := &callers{a: a}
		mustAcquire(t, a)
		c.queue(t.Context(), "first", false)
		c.queue(t.Context(), "second", false)
		c.queue(t.Context(), "begun before", true)
		c.queue(t.Context(), "third", false)
		c.queue(t.Context(), "begun before, too", true)
		c.want(t)
		a.release(caller{}, 0)
		c.want(t, "begun before", "begun before, too", "first", "second", "third")
	})
}

// The next slot goes to the caller that holds the fewest, and callers that hold as many take turns.
func TestAdmissionIsFairBetweenCallers(t *testing.T) {
	testAdmission(t, 2, func(t *testing.T, a *admission) {
		c := &callers{a: a}
		flood, light, other := caller{group: 1}, caller{group: 2}, caller{group: 3}
		for range 2 {
			if err := a.acquire(t.Context(), flood, false); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"flood 1", "flood 2", "flood 3"} {
			c.queueBy(t.Context(), flood, name, false)
		}
		c.queueBy(t.Context(), light, "light 1", false)
		c.queueBy(t.Context(), other, "other 1", true)
		c.queueBy(t.Context(), light, "light 2", false)
		a.release(flood, 0)
		c.want(t, "light 1", "other 1", "light 2")
		a.release(flood, 0)
		c.want(t, "light 1", "other 1", "light 2", "flood 1", "flood 2", "flood 3")
	})
}

// While another caller is active, a caller runs half of the slots at most.
func TestAdmissionLeavesSlotsToOthers(t *testing.T) {
	testAdmission(t, 4, func(t *testing.T, a *admission) {
		flood, light := caller{group: 1}, caller{group: 2}
		take := func(by caller) {
			t.Helper()
			began := time.Now()
			if err := a.acquire(t.Context(), by, false); err != nil || time.Since(began) > 0 {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
		}
		take(light)
		a.release(light, 0)
		take(flood)
		take(flood)
		c := &callers{a: a}
		c.queueBy(t.Context(), flood, "flood", false)
		if running, queued := counts(a); running != 2 || queued != 1 {
			t.Errorf("%d run, %d queue", running, queued)
		}
		take(light)
		a.release(light, 0)
		c.want(t)
		a.release(flood, 0)
		c.want(t, "flood")
		<-time.After(activeTime + 1) // the other one is not active any more
		for range 3 {
			take(flood)
		}
		for range 4 {
			a.release(flood, 0)
		}
	})
}

// A caller with few requests is accepted while another one fills the queue, even if it is full.
func TestAdmissionShedsTheLongestQueue(t *testing.T) {
	for _, tt := range []struct {
		name          string
		holdTime      time.Duration
		before, after int // the queue's length
	}{
		{"long wait", 50 * time.Millisecond, 10, 11},
		{"full", 0, maxQueuePerSlot, maxQueuePerSlot},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testAdmission(t, 1, func(t *testing.T, a *admission) {
				a.holdTime = tt.holdTime
				c := &callers{a: a}
				flood, light := caller{group: 1}, caller{group: 2}
				if err := a.acquire(t.Context(), flood, false); err != nil {
					t.Fatal(err)
				}
				shed := 0
				for range 2 * maxQueuePerSlot {
					go func() {
						if a.acquire(t.Context(), flood, false) != nil {
							shed++
							return
						}
						a.release(flood, 0)
					}()
					synctest.Wait()
				}
				_, before := counts(a)
				c.queueBy(t.Context(), light, "light", false)
				_, after := counts(a)
				if before != tt.before || after != tt.after || shed != 2*maxQueuePerSlot-after+1 {
					t.Errorf("%d queued before, %d after, %d were shed", before, after, shed)
				}
				c.want(t)
				a.release(flood, 0)
				c.want(t, "light")
			})
		})
	}
}

// Held requests resume again and again, and go first. They must not starve fresh requests.
func TestAdmissionDoesNotStarveFreshRequests(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		c := &callers{a: a}
		mustAcquire(t, a)
		c.queue(t.Context(), "new", false)
		for range 2 * freshInterval {
			c.queue(t.Context(), "held", true)
		}
		a.release(caller{}, 0)
		synctest.Wait()
		if at := slices.Index(c.served, "new"); at < 0 || at >= freshInterval || len(c.served) != 2*freshInterval+1 {
			t.Errorf("served %q", c.served)
		}
	})
}

func TestAdmissionShedsAtTheWaitLimit(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		for _, resumes := range []bool{false, true} {
			mustAcquire(t, a)
			began := time.Now()
			err := a.acquire(t.Context(), caller{}, resumes)
			if waited := time.Since(began); !errors.Is(err, errBusy) || waited != testWaitLimit {
				t.Errorf("%v after %s", err, waited)
			}
			a.release(caller{}, 0)
			mustAcquire(t, a) // the shed request left the queue
			a.release(caller{}, 0)
		}
	})
}

func TestAdmissionRemovesCancelledRequests(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		c := &callers{a: a}
		ctx, cancel := context.WithCancel(t.Context())
		mustAcquire(t, a)
		c.queue(t.Context(), "first", false)
		c.queue(ctx, "second", false)
		c.queue(t.Context(), "third", false)
		cancel()
		c.want(t, "second: context canceled")
		if _, queued := counts(a); queued != 2 {
			t.Errorf("%d queue", queued)
		}
		a.release(caller{}, 0)
		c.want(t, "second: context canceled", "first", "third")
	})
}

// A request that gets its slot at the moment its context ends keeps the slot; otherwise the slot
// would leak.
func TestAdmissionLosesNoSlot(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		ended, end := context.WithCancel(t.Context())
		end()
		for range 50 { // select takes either way
			mustAcquire(t, a)
			w, err := a.enqueue(time.Now(), caller{}, false)
			if err != nil {
				t.Fatal(err)
			}
			a.release(caller{}, 0)
			if err := a.await(ended, w); err != nil {
				t.Fatal(err)
			}
			a.release(caller{}, 0)
		}
	})
}
