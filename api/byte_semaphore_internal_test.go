package api

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// testSemaphore runs a test of a semaphore of 100 bytes in a synctest bubble. At the end all bytes
// must be free.
func testSemaphore(t *testing.T, test func(*testing.T, *byteSemaphore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newByteSemaphore(100, 1, newBodyMetrics(prometheus.NewRegistry()).of("large"))
		test(t, s)
		synctest.Wait()
		if s.used != 0 || len(s.callers)+s.waiters.Len()+s.arriving.Len() != 0 {
			t.Errorf("at the end %d bytes are used by %v, %d wait, %d arrive", s.used, s.callers, s.waiters.Len(),
				s.arriving.Len())
		}
	})
}

// take acquires bytes that must be free.
func take(t *testing.T, s *byteSemaphore, caller string, bytes int64, abort func()) *byteLease {
	t.Helper()
	began := time.Now()
	l, err := s.acquire(t.Context(), caller, bytes, abort)
	if err != nil || time.Since(began) > 0 {
		t.Fatalf("%s got %d bytes after %v: %v", caller, bytes, time.Since(began), err)
	}
	return l
}

// takeLater acquires bytes in the background. It sends the caller once they are acquired, and
// releases them at once.
func takeLater(t *testing.T, s *byteSemaphore, caller string, bytes int64, order *[]string) {
	t.Helper()
	go func() {
		l, err := s.acquire(t.Context(), caller, bytes, func() {})
		if err != nil {
			caller += ": " + err.Error()
		}
		*order = append(*order, caller)
		l.release()
	}()
	synctest.Wait()
}

func TestBytesGoToTheCallerWithTheFewest(t *testing.T) {
	t.Parallel()
	testSemaphore(t, func(t *testing.T, s *byteSemaphore) {
		a, b := take(t, s, "a", 50, func() {}), take(t, s, "b", 10, func() {})
		c := take(t, s, "c", 40, func() {})
		var order []string
		takeLater(t, s, "b", 30, &order)
		takeLater(t, s, "d", 30, &order)
		takeLater(t, s, "e", 30, &order)
		if len(order) > 0 {
			t.Errorf("%v got bytes that are in use", order)
		}
		c.release()
		synctest.Wait()
		if want := []string{"d", "e", "b"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		a.release()
		b.release()
	})
}

func TestCallerHoldsAtMostHalf(t *testing.T) {
	t.Parallel()
	testSemaphore(t, func(t *testing.T, s *byteSemaphore) {
		first := take(t, s, "a", 50, func() {})
		var order []string
		takeLater(t, s, "a", 10, &order)
		take(t, s, "b", 10, func() {}).release()
		first.release()
		synctest.Wait()
		if want := []string{"a"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		if _, err := s.acquire(t.Context(), "c", 51, func() {}); !errors.Is(err, errNoBodyMemory) {
			t.Errorf("more than half: %v", err)
		}
	})
}

func TestBodyWaitsAtMostTheLimit(t *testing.T) {
	t.Parallel()
	testSemaphore(t, func(t *testing.T, s *byteSemaphore) {
		leases := []*byteLease{take(t, s, "a", 50, func() {}), take(t, s, "b", 50, func() {})}
		for _, l := range leases {
			l.complete(50)
		}
		began := time.Now()
		_, err := s.acquire(t.Context(), "c", 1, func() {})
		if !errors.Is(err, errNoBodyMemory) || time.Since(began) != bodyWaitLimit {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.acquire(ctx, "c", 1, func() {}); !errors.Is(err, errNoBodyMemory) {
			t.Errorf("the request ended: %v", err)
		}
		if n := metricValue(t, s.metrics.full); n != 2 {
			t.Errorf("counted %v refusals", n)
		}
		for _, l := range leases {
			l.release()
			l.release()
		}
	})
}

// A caller's waiters fill a part of the queue only.
func TestCallersQueueIsBounded(t *testing.T) {
	t.Parallel()
	testSemaphore(t, func(t *testing.T, s *byteSemaphore) {
		first := take(t, s, "a", 50, func() {})
		var got atomic.Int64
		for range maxCallerBodyWaiters {
			go func() {
				if l, err := s.acquire(t.Context(), "a", 1, func() {}); err == nil {
					got.Add(1)
					l.release()
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		if _, err := s.acquire(t.Context(), "a", 1, func() {}); !errors.Is(err, errNoBodyMemory) ||
			time.Since(began) > 0 {
			t.Errorf("one more after %v: %v", time.Since(began), err)
		}
		take(t, s, "b", 50, func() {}).release()
		first.release()
		synctest.Wait()
		if got.Load() != maxCallerBodyWaiters {
			t.Errorf("%d of the queued bodies got bytes", got.Load())
		}
	})
}

func TestOldUnfinishedBodiesGiveWay(t *testing.T) {
	t.Parallel()
	testSemaphore(t, func(t *testing.T, s *byteSemaphore) {
		var aborted []string
		leases := map[string]*byteLease{}
		for _, caller := range []string{"complete", "old", "newer", "young"} {
			if caller == "young" {
				<-time.After(bodyGrace)
			}
			leases[caller] = take(t, s, caller, 25, func() {
				aborted = append(aborted, caller)
				go leases[caller].release()
			})
		}
		leases["complete"].complete(25)
		var order []string
		takeLater(t, s, "waiting", 30, &order)
		if want := []string{"old", "newer"}; !slices.Equal(aborted, want) {
			t.Errorf("aborted %v, want %v", aborted, want)
		}
		if want := []string{"waiting"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		if leases["old"].complete(25) || !leases["young"].complete(25) {
			t.Error("the aborted body counts as complete, or the other does not")
		}
		leases["complete"].release()
		leases["young"].release()
	})
}

// A caller that holds its half can acquire no more, so it aborts its own bodies only.
func TestCallerAtItsLimitAbortsNoOthersBody(t *testing.T) {
	t.Parallel()
	testSemaphore(t, func(t *testing.T, s *byteSemaphore) {
		leases := map[string]*byteLease{}
		var aborted []string
		begin := func(caller string, bytes int64) {
			leases[caller] = take(t, s, caller, bytes, func() {
				aborted = append(aborted, caller)
				go leases[caller].release()
			})
		}
		begin("slow", 50)
		complete := take(t, s, "greedy", 30, func() {})
		complete.complete(30)
		begin("greedy", 20)
		<-time.After(bodyGrace)
		var order []string
		takeLater(t, s, "greedy", 20, &order)
		if want := []string{"greedy"}; !slices.Equal(aborted, want) || !slices.Equal(order, want) {
			t.Errorf("a caller at its limit aborted %v, and %v got bytes; want its own only", aborted, order)
		}
		takeLater(t, s, "third", 50, &order)
		if want := []string{"greedy", "slow"}; !slices.Equal(aborted, want) {
			t.Errorf("a caller below its limit aborted %v, want %v", aborted, want)
		}
		complete.release()
	})
}

func TestCompleteBodyGivesItsSurplusBack(t *testing.T) {
	t.Parallel()
	testSemaphore(t, func(t *testing.T, s *byteSemaphore) {
		l := take(t, s, "a", 50, func() {})
		l.complete(10)
		take(t, s, "b", 50, func() {}).release()
		take(t, s, "a", 40, func() {}).release()
		if n := metricValue(t, s.metrics.inUse); n != 10 {
			t.Errorf("%v bytes are in use", n)
		}
		l.release()
	})
}

// metricValue returns the value of a counter or gauge.
func metricValue(t *testing.T, metric prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metric)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	m := families[0].GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}
