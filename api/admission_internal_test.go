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
	return a.running, a.queued()
}

// callers starts requests and records the order in which they acquire the one slot.
type callers struct {
	a      *admission
	served []string // written only by the holder of the slot
}

// queue starts a request that queues behind the earlier ones.
func (c *callers) queue(ctx context.Context, name string, resumes bool) {
	go func() {
		if err := c.a.acquire(ctx, resumes); err != nil {
			c.served = append(c.served, name+": "+err.Error())
			return
		}
		c.served = append(c.served, name)
		c.a.release(0)
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
	if err := a.acquire(t.Context(), false); err != nil {
		t.Fatal(err)
	}
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
		a.release(0)
		c.want(t, "begun before", "begun before, too", "first", "second", "third")
	})
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
		a.release(0)
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
			err := a.acquire(t.Context(), resumes)
			if waited := time.Since(began); !errors.Is(err, errBusy) || waited != testWaitLimit {
				t.Errorf("%v after %s", err, waited)
			}
			a.release(0)
			mustAcquire(t, a) // the shed request left the queue
			a.release(0)
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
		a.release(0)
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
			w, err := a.enqueue(time.Now(), false)
			if err != nil {
				t.Fatal(err)
			}
			a.release(0)
			if err := a.await(ended, w); err != nil {
				t.Fatal(err)
			}
			a.release(0)
		}
	})
}

// A request is shed at once if the average hold time makes its wait too long.
func TestAdmissionShedsAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		slots    int
		holdTime time.Duration
		wait     int // the queue's length when the next request is shed
	}{
		{"slow", 1, 100 * time.Millisecond, 5},
		{"slower than the wait limit", 1, time.Second, 0},
		{"two slots", 2, 100 * time.Millisecond, 10},
		{"fast", 2, time.Microsecond, 2 * maxQueuePerSlot},
		{"no hold time yet", 1, 0, maxQueuePerSlot},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testAdmission(t, tt.slots, func(t *testing.T, a *admission) {
				ctx, cancel := context.WithCancel(t.Context())
				a.holdTime = tt.holdTime
				for range tt.slots {
					mustAcquire(t, a)
				}
				for range tt.wait {
					go func() { _ = a.acquire(ctx, false) }()
				}
				synctest.Wait()
				began := time.Now()
				if err := a.acquire(ctx, false); !errors.Is(err, errBusy) || time.Since(began) > 0 {
					t.Errorf("one more: %v after %s", err, time.Since(began))
				}
				if _, queued := counts(a); queued != tt.wait {
					t.Errorf("%d queue, want %d", queued, tt.wait)
				}
				cancel()
				synctest.Wait()
				for range tt.slots {
					a.release(0)
				}
			})
		})
	}
}

// Sustained load shortens the queue; a burst afterwards may fill it again.
func TestAdmissionShortensTheQueueUnderSustainedLoad(t *testing.T) {
	for _, tt := range []struct {
		name             string
		holdTime         time.Duration
		sustained, burst int // the queue's length
	}{
		{"fast", 10 * time.Millisecond, 5, 32},
		{"slow", 100 * time.Millisecond, 1, 5}, // one request per slot may always queue
	} {
		t.Run(tt.name, func(t *testing.T) { testSustainedLoad(t, tt.holdTime, tt.sustained, tt.burst) })
	}
}

func testSustainedLoad(t *testing.T, holdTime time.Duration, sustained, burst int) {
	t.Helper()
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		ctx, cancel := context.WithCancel(t.Context())
		a.holdTime = holdTime
		mustAcquire(t, a)
		for range 2 { // the second request queues before the first is shed
			go func() { _ = a.acquire(ctx, false) }()
			<-time.After(testWaitLimit * 3 / 4)
		}
		for range 4 {
			go func() { _ = a.acquire(ctx, false) }()
		}
		synctest.Wait()
		if _, queued := counts(a); queued != sustained {
			t.Errorf("%d queue, want %d", queued, sustained)
		}
		if err := a.acquire(ctx, false); !errors.Is(err, errBusy) {
			t.Errorf("one more: %v", err)
		}
		cancel()
		synctest.Wait()
		for range 40 { // a burst afterwards
			go func() { _ = a.acquire(t.Context(), false) }()
		}
		synctest.Wait()
		if _, queued := counts(a); queued != burst {
			t.Errorf("%d queue in a burst, want %d", queued, burst)
		}
		<-time.After(2 * testWaitLimit) // all of them are shed
		a.release(0)
	})
}

func TestAdmissionAveragesTheHoldTime(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		for range 300 {
			mustAcquire(t, a)
			a.release(80 * time.Millisecond)
		}
		if a.holdTime < 79*time.Millisecond || a.holdTime > 80*time.Millisecond {
			t.Errorf("hold time %s", a.holdTime)
		}
	})
}

// No more requests run at once than there are slots, and every request is served or shed.
func TestAdmissionLimitsConcurrency(t *testing.T) {
	const slots, callers = 3, 500
	testAdmission(t, slots, func(t *testing.T, a *admission) {
		var mu sync.Mutex
		var group sync.WaitGroup
		running, most, served, refused := 0, 0, 0, 0
		for i := range callers {
			group.Go(func() {
				<-time.After(time.Duration(i%50) * time.Millisecond)
				held := slot{admission: a}
				err := held.acquire(t.Context(), i%7 == 0)
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
				held.release()
				held.release() // a second release changes nothing
			})
		}
		group.Wait()
		if most != slots || served+refused != callers || refused == 0 ||
			served < slots*int(testWaitLimit/(10*time.Millisecond))/2 {
			t.Errorf("%d ran at once, %d were served, %d refused", most, served, refused)
		}
	})
}

func TestAdmissionWithoutALimit(t *testing.T) {
	testAdmission(t, 0, func(t *testing.T, a *admission) {
		for range 1000 {
			mustAcquire(t, a)
		}
		for range 1000 {
			a.release(time.Hour)
		}
	})
}
