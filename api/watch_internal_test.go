package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// watched is a value that a test changes and a watch polls.
type watched struct {
	value, polls atomic.Int64
	failing      atomic.Bool
	panicking    atomic.Bool
	trace        atomic.Value // of the last poll
	log          bytes.Buffer
	watches      *watches[string, int64]
}

var errPoll = errors.New("poll failed")

func newWatched() *watched {
	w := &watched{}
	w.watches = newWatches(slog.New(slog.NewTextHandler(&w.log, nil)), minPollInterval, maxPollInterval, func(
		ctx context.Context, _ string,
	) (int64, error) {
		w.polls.Add(1)
		w.trace.Store(models.TraceIDFrom(ctx))
		if w.panicking.Load() {
			panic("poll panicked")
		}
		if w.failing.Load() {
			return 0, errPoll
		}
		return w.value.Load(), nil
	})
	return w
}

// wait starts n requests that wait for a value of at least want. It returns how many saw it, and
// how many saw an error.
func (w *watched) wait(t *testing.T, n int, key string, want int64) (seen, failed *atomic.Int64) {
	t.Helper()
	seen, failed = new(atomic.Int64), new(atomic.Int64)
	for range n {
		go func() {
			watch, leave := w.watches.join(&Request{}, key)
			defer leave()
			s, ok := watch.await(t.Context(), 0, func(v int64) bool { return v >= want })
			switch {
			case ok && s.err == nil && s.value >= want:
				seen.Add(1)
			case ok:
				failed.Add(1)
			}
		}()
	}
	synctest.Wait()
	return seen, failed
}

// However many requests wait, a key has one poll an interval, and none once they have left.
func TestWatchPollsOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		seen, _ := w.wait(t, 1000, "a", 1)
		<-time.After(20 * time.Second)
		if polls := w.polls.Load(); polls < 15 || polls > 24 {
			t.Errorf("%d polls in 20 s", polls)
		}
		w.value.Store(1)
		<-time.After(maxPollInterval)
		synctest.Wait()
		if seen.Load() != 1000 || len(w.watches.open) != 0 {
			t.Errorf("%d saw the change, %d watches are open", seen.Load(), len(w.watches.open))
		}
		polls := w.polls.Load()
		<-time.After(time.Minute)
		if more := w.polls.Load() - polls; more != 0 {
			t.Errorf("%d polls for no request", more)
		}
	})
}

// A request that joins a quiet watch is as fast as the first.
func TestWatchPollsSoonForANewRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		first, _ := w.wait(t, 1, "a", 1)
		<-time.After(10*time.Second + 50*time.Millisecond)
		second, _ := w.wait(t, 1, "a", 1)
		w.value.Store(1)
		<-time.After(minPollInterval)
		synctest.Wait()
		if first.Load() != 1 || second.Load() != 1 {
			t.Errorf("%d and %d saw the change", first.Load(), second.Load())
		}
	})
}

func TestWatchReportsErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		w.failing.Store(true)
		seen, failed := w.wait(t, 3, "a", 1)
		other, _ := w.wait(t, 1, "b", 0)
		<-time.After(minPollInterval)
		synctest.Wait()
		if seen.Load() != 0 || failed.Load() != 3 || other.Load() != 0 || len(w.watches.open) != 0 {
			t.Errorf("%d saw a value, %d an error", seen.Load(), failed.Load())
		}
	})
}

// A panic in a poll ends neither the process nor the watch.
func TestWatchOutlivesAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		w.panicking.Store(true)
		_, failed := w.wait(t, 3, "a", 1)
		watch, leave := w.watches.join(&Request{}, "a")
		<-time.After(minPollInterval)
		synctest.Wait()
		if s := watch.last(); failed.Load() != 3 || !errors.Is(s.err, errPollPanicked) {
			t.Errorf("%d saw an error: %v", failed.Load(), s.err)
		}
		w.panicking.Store(false)
		w.value.Store(1)
		if s, ok := watch.await(t.Context(), watch.last().number, func(v int64) bool { return v == 1 }); !ok {
			t.Errorf("after the panic: %+v", s)
		}
		leave()
		synctest.Wait()
		for _, part := range []string{"poll panicked", "watch_internal_test.go"} { // the panic and its stack
			if !strings.Contains(w.log.String(), part) {
				t.Errorf("the log lacks %q: %s", part, &w.log)
			}
		}
	})
}

// A watch belongs to no request: it has its own trace, and its slots count for the organisation
// even if the first request's token was not known yet.
func TestWatchHasItsOwnTraceAndCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched()
		a := newAdmission(1, time.Second, prometheus.NewRegistry())
		r := &Request{trace: models.NewTraceID(), slot: slot{admission: a, caller: caller{group: 1}}}
		r.Principal.OrganisationID = models.OrganisationID(uuid.New())
		_, leave := w.watches.join(r, "a")
		<-time.After(minPollInterval)
		synctest.Wait()
		leave()
		synctest.Wait()
		if trace := w.trace.Load(); trace == r.trace || trace == models.TraceID("") {
			t.Errorf("trace %v", trace)
		}
		if last := a.recent[0].caller; last != callerOf(&r.Principal) || last.group != 0 {
			t.Errorf("the poll counted for %+v", last)
		}
	})
}
