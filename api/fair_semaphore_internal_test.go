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

// testFair runs a test of a semaphore in a synctest bubble. At the end all permits must be free.
func testFair(t *testing.T, permits int64, maxWaiters int, test func(*testing.T, *fairSemaphore[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
		s := newFairSemaphore[string](
			fairLimits{permits: permits, waitersPerCaller: maxWaiters, wait: time.Second}, refused)
		test(t, s)
		synctest.Wait()
		if s.used != 0 || len(s.callers)+s.waiters.Len() != 0 {
			t.Errorf("at the end %d are used, by %v", s.used, s.callers)
		}
	})
}

// The order of permits: a caller with many waiters gets one in turn with the others.
func TestFairSemaphoreGrantsInOrder(t *testing.T) {
	t.Parallel()
	testFair(t, 2, 10, func(t *testing.T, s *fairSemaphore[string]) {
		var mu sync.Mutex
		var order []string
		hold := func(caller string, d time.Duration) {
			go func() {
				if err := s.acquire(t.Context(), caller, 1); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, caller)
				mu.Unlock()
				<-time.After(d)
				s.release(caller, 1)
			}()
			synctest.Wait()
		}
		for i := range 6 { // the first two run, and end one after the other
			hold("a", time.Duration(100+10*i)*time.Millisecond)
		}
		hold("b", 100*time.Millisecond)
		hold("c", 100*time.Millisecond)
		<-time.After(10 * time.Second)
		if want := []string{"a", "a", "b", "c", "a", "a", "a", "a"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

func TestFairSemaphoreRefuses(t *testing.T) {
	t.Parallel()
	testFair(t, 1, 2, func(t *testing.T, s *fairSemaphore[string]) {
		if err := s.acquire(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 3)
		began := time.Now()
		for range 2 {
			go func() { errs <- s.acquire(t.Context(), "a", 1) }()
		}
		synctest.Wait()
		if err := s.acquire(t.Context(), "a", 1); !errors.Is(err, errQueueFull) || time.Since(began) > 0 {
			t.Errorf("one more after %v: %v", time.Since(began), err)
		}
		go func() { errs <- s.acquire(ctx, "b", 1) }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, errNoPermit) || time.Since(began) > 0 {
			t.Errorf("cancelled after %v: %v", time.Since(began), err)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, errNoPermit) || time.Since(began) != time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		if n := metricValue(t, s.refused); n != 4 {
			t.Errorf("counted %v refusals", n)
		}
		s.release("a", 1)
	})
}

// A permit that comes at the moment its waiter gives up is not lost.
func TestFairSemaphoreLosesNoPermit(t *testing.T) {
	t.Parallel()
	testFair(t, 1, 2, func(t *testing.T, s *fairSemaphore[string]) {
		ended, end := context.WithCancel(t.Context())
		end()
		for range 50 { // select takes either way
			if err := s.acquire(t.Context(), "a", 1); err != nil {
				t.Fatal(err)
			}
			w, err := s.enqueue("b", 1)
			if err != nil {
				t.Fatal(err)
			}
			s.release("a", 1)
			if err := s.await(ended, w); err != nil {
				t.Fatal(err)
			}
			s.release("b", 1)
		}
	})
}
