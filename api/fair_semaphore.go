package api

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	// errNoPermit means that no permit became free in time. It is not logged.
	errNoPermit = fmt.Errorf("%w: no permit in time", errBusy)
	// errCallerQueueFull means that the caller has as many waiters as one caller may have.
	errCallerQueueFull = fmt.Errorf("%w: too many requests of the caller wait", errBusy)
)

// fairSemaphore bounds how many costly steps run at once. The next permit goes to the waiting
// caller that holds the fewest, then to the caller whose last permit is the longest ago, then to
// the oldest waiter. A fairSemaphore is safe for concurrent use.
type fairSemaphore[K comparable] struct {
	permits    int
	maxWaiters int // of one caller
	waitLimit  time.Duration
	refused    prometheus.Counter

	mu      sync.Mutex
	used    int
	grants  uint64            // so far
	callers map[K]*permitUser // those that hold a permit or wait for one
	waiters list.List         // of *permitWaiter[K], in the order of arrival
}

// permitUser holds the numbers of a caller's permits and waiters.
type permitUser struct {
	held, waiting int
	granted       uint64 // the number of the last grant; 0 before the first
}

// permitWaiter is a queued request for a permit.
type permitWaiter[K comparable] struct {
	caller   K
	element  *list.Element // in waiters; nil once the permit is acquired
	acquired chan struct{} // closed when the permit is acquired
}

func newFairSemaphore[K comparable](
	permits, maxWaiters int, waitLimit time.Duration, refused prometheus.Counter,
) *fairSemaphore[K] {
	return &fairSemaphore[K]{
		permits: permits, maxWaiters: maxWaiters, waitLimit: waitLimit, refused: refused,
		callers: map[K]*permitUser{},
	}
}

// acquire waits for a permit, at most the wait limit. It returns errCallerQueueFull at once if too
// many requests of the caller wait already, and errNoPermit if none becomes free in time or before
// ctx ends.
func (s *fairSemaphore[K]) acquire(ctx context.Context, caller K) error {
	w, err := s.enqueue(caller)
	if err == nil {
		err = s.await(ctx, w)
	}
	if err != nil {
		s.refused.Inc()
	}
	return err
}

func (s *fairSemaphore[K]) enqueue(caller K) (*permitWaiter[K], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.callers[caller]
	if u == nil {
		u = &permitUser{}
		s.callers[caller] = u
	}
	if u.waiting >= s.maxWaiters {
		return nil, errCallerQueueFull
	}
	w := &permitWaiter[K]{caller: caller, acquired: make(chan struct{})}
	w.element = s.waiters.PushBack(w)
	u.waiting++
	s.grant()
	return w, nil
}

func (s *fairSemaphore[K]) await(ctx context.Context, w *permitWaiter[K]) error {
	timer := time.NewTimer(s.waitLimit)
	defer timer.Stop()
	select {
	case <-w.acquired:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.element == nil { // the permit came at the same moment
		return nil
	}
	s.dequeue(w)
	return errNoPermit
}

// grant gives free permits to waiters. The caller of grant holds mu.
func (s *fairSemaphore[K]) grant() {
	for s.used < s.permits {
		w := s.next()
		if w == nil {
			return
		}
		s.used++
		s.grants++
		u := s.callers[w.caller]
		u.held++
		u.granted = s.grants
		s.dequeue(w)
		close(w.acquired)
	}
}

// next returns the waiter that comes next, nil if there is none. The caller of next holds mu.
func (s *fairSemaphore[K]) next() *permitWaiter[K] {
	var next *permitWaiter[K]
	var best *permitUser
	for e := s.waiters.Front(); e != nil; e = e.Next() {
		w, _ := e.Value.(*permitWaiter[K])
		u := s.callers[w.caller]
		if next == nil || cmp.Or(cmp.Compare(u.held, best.held), cmp.Compare(u.granted, best.granted)) < 0 {
			next, best = w, u
		}
	}
	return next
}

// dequeue takes a waiter out of the queue. The caller of dequeue holds mu.
func (s *fairSemaphore[K]) dequeue(w *permitWaiter[K]) {
	s.waiters.Remove(w.element)
	w.element = nil
	s.callers[w.caller].waiting--
	s.forget(w.caller)
}

// release gives a permit of the caller back.
func (s *fairSemaphore[K]) release(caller K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.callers[caller].held--
	s.forget(caller)
	s.grant()
}

// forget deletes a caller that neither holds a permit nor waits for one. The caller of forget holds
// mu.
func (s *fairSemaphore[K]) forget(caller K) {
	if u := s.callers[caller]; u.held+u.waiting == 0 {
		delete(s.callers, caller)
	}
}
