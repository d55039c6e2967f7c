package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"partnerbilling/models"
)

// The watch of a held request polls at intervals that double from the minimum to the maximum.
const (
	minPollInterval = 100 * time.Millisecond
	maxPollInterval = time.Second
	// pollTimeout bounds one poll.
	pollTimeout = 5 * time.Second
)

// watches poll the state that held requests and streams wait for. All requests that wait for one
// key share one poll per interval. watches are safe for concurrent use.
type watches[K, V comparable] struct {
	poll     func(ctx context.Context, key K) (V, error)
	min, max time.Duration // the interval doubles from min to max
	log      *slog.Logger

	mu   sync.Mutex
	open map[K]*watch[V]
}

// watch polls the state of one key. Its goroutine runs as long as requests wait.
type watch[V comparable] struct {
	waiters int // guarded by watches.mu
	stop    context.CancelFunc
	joined  chan struct{} // receives a value when a request joins

	mu      sync.Mutex
	seen    sighting[V]
	changed chan struct{} // closed and replaced when seen.number rises
}

// sighting is the latest state that a watch has seen.
type sighting[V comparable] struct {
	number uint64 // rises when value changes, or err from or to nil; 0 before the first poll
	value  V
	err    error
	began  time.Time // when the last poll began
}

// newWatches returns watches that read the state of a key with poll. The interval of a watch
// doubles from minInterval to maxInterval.
func newWatches[K, V comparable](
	log *slog.Logger, minInterval, maxInterval time.Duration, poll func(ctx context.Context, key K) (V, error),
) *watches[K, V] {
	return &watches[K, V]{poll: poll, min: minInterval, max: maxInterval, log: log, open: map[K]*watch[V]{}}
}

// join returns the watch of a key, and counts the request as waiting for it. leave ends that, and
// must be called once. The polls have a trace of their own, and take slots of the request's
// organisation. All requests that join one key must be of one organisation.
func (s *watches[K, V]) join(r *Request, key K) (w *watch[V], leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w = s.open[key]
	if w == nil {
		w = &watch[V]{joined: make(chan struct{}, 1), changed: make(chan struct{})}
		s.open[key] = w
		traced := models.WithTraceID(context.Background(), models.NewTraceID())
		running, stop := context.WithCancel(traced) //nolint:gosec // leave calls stop
		w.stop = stop
		permit := r.stepSlot()
		go w.run(running, s.min, s.max, func(ctx context.Context) (V, error) { return s.pollWith(ctx, permit, key) })
	}
	w.waiters++
	select {
	case w.joined <- struct{}{}:
	default: // an earlier signal is still unread
	}
	return w, func() { s.leave(key, w) }
}

// pollWith polls with a slot. A panic becomes an error that wraps errPollPanicked.
func (s *watches[K, V]) pollWith(ctx context.Context, permit slot, key K) (value V, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "panic in a poll for held requests", "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPollPanicked, p)
		}
	}()
	if err := permit.acquire(ctx, true); err != nil {
		return value, err
	}
	defer permit.release()
	return s.poll(ctx, key)
}

// errPollPanicked is the error of a poll that panics.
var errPollPanicked = errors.New("api: a poll for held requests has panicked")

// leave ends the wait of one request. The last one stops the watch.
func (s *watches[K, V]) leave(key K, w *watch[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.waiters--; w.waiters == 0 {
		delete(s.open, key)
		w.stop()
	}
}

// run polls until ctx ends. If a request joins, the interval starts again at minInterval.
func (w *watch[V]) run(
	ctx context.Context, minInterval, maxInterval time.Duration, poll func(context.Context) (V, error),
) {
	now := time.Now //nolint:forbidigo // measures only intervals
	interval := minInterval
	due := now().Add(interval)
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.joined:
			interval = minInterval
			if soon := now().Add(interval); soon.Before(due) {
				due = soon
				timer.Reset(interval)
			}
			continue
		case <-timer.C:
		}
		w.pollOnce(ctx, poll)
		interval = min(2*interval, maxInterval)
		due = now().Add(interval)
		timer.Reset(interval)
	}
}

// pollOnce polls once and publishes the result. A poll that got no slot publishes nothing.
func (w *watch[V]) pollOnce(ctx context.Context, poll func(context.Context) (V, error)) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	began := time.Now()
	value, err := poll(ctx)
	if errors.Is(err, errBusy) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.seen
	w.seen = sighting[V]{was.number, value, err, began}
	if was.number == 0 || value != was.value || (err == nil) != (was.err == nil) {
		w.seen.number++
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

// last returns the latest sighting.
func (w *watch[V]) last() sighting[V] {
	seen, _ := w.current()
	return seen
}

// current returns the latest sighting, and a channel that is closed when its number rises.
func (w *watch[V]) current() (sighting[V], <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, w.changed
}

// hold waits for a sighting after seen that ends the wait, at most for the given time. It returns
// the last sighting that it has looked at. A sighting ends the wait if recheck confirms that. hold
// calls recheck for sightings whose value is wanted, and for those of failed polls.
//
// The wait also ends when the client disconnects or a shutdown begins. It is an error if the caller
// loses access. A held request keeps neither a slot nor a database connection while it waits.
func (w *watch[V]) hold(
	ctx context.Context, r *Request, seen sighting[V], wait time.Duration, wanted func(V) bool,
	recheck func(sighting[V]) (ended bool, err error),
) (sighting[V], error) {
	waiting, stop := r.UntilDisconnect(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(waiting, wait)
	defer cancel()
	caller := r.callerCheck()
	for ended := false; !ended && waiting.Err() == nil; {
		err := r.withoutSlot(ctx, func() {
			part, cancel := context.WithTimeout(waiting, caller.untilDue())
			defer cancel()
			seen, ended = w.await(part, seen.number, wanted)
		})
		if err == nil {
			err = caller.repeatIfDue(ctx)
		}
		if err == nil && ended {
			ended, err = recheck(seen)
		}
		if err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// await waits for a sighting after the given number whose value is wanted or whose poll has failed.
// ok is false if ctx ends first.
func (w *watch[V]) await(ctx context.Context, number uint64, wanted func(V) bool) (_ sighting[V], ok bool) {
	for {
		seen, changed := w.current()
		if seen.number > number && (seen.err != nil || wanted(seen.value)) {
			return seen, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return seen, false
		}
	}
}
