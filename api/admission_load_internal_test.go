package api

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

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
					go func() { _ = a.acquire(ctx, caller{}, false) }()
				}
				synctest.Wait()
				began := time.Now()
				if err := a.acquire(ctx, caller{}, false); !errors.Is(err, errBusy) || time.Since(began) > 0 {
					t.Errorf("one more: %v after %s", err, time.Since(began))
				}
				if _, queued := counts(a); queued != tt.wait {
					t.Errorf("%d queue, want %d", queued, tt.wait)
				}
				cancel()
				synctest.Wait()
				for range tt.slots {
					a.release(caller{}, 0)
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
			go func() { _ = a.acquire(ctx, caller{}, false) }()
			<-time.After(testWaitLimit * 3 / 4)
		}
		for range 4 {
			go func() { _ = a.acquire(ctx, caller{}, false) }()
		}
		synctest.Wait()
		if _, queued := counts(a); queued != sustained {
			t.Errorf("%d queue, want %d", queued, sustained)
		}
		if err := a.acquire(ctx, caller{}, false); !errors.Is(err, errBusy) {
			t.Errorf("one more: %v", err)
		}
		cancel()
		synctest.Wait()
		for range 40 { // a burst afterwards
			go func() { _ = a.acquire(t.Context(), caller{}, false) }()
		}
		synctest.Wait()
		if _, queued := counts(a); queued != burst {
			t.Errorf("%d queue in a burst, want %d", queued, burst)
		}
		<-time.After(2 * testWaitLimit) // all of them are shed
		a.release(caller{}, 0)
	})
}

func TestAdmissionAveragesTheHoldTime(t *testing.T) {
	testAdmission(t, 1, func(t *testing.T, a *admission) {
		for range 300 {
			mustAcquire(t, a)
			a.release(caller{}, 80*time.Millisecond)
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
			a.release(caller{}, time.Hour)
		}
	})
}
