package api

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	// errNoPermit means that the permits did not become free in time, or that the caller may not
	// hold as many. Server.fail does not log it.
	errNoPermit = fmt.Errorf("%w: no permit in time", errBusy)
	// errQueueFull means that the queue is full, overall or for the caller. Server.fail does not
	// log it.
	errQueueFull = fmt.Errorf("%w: too many requests wait", errBusy)
)

// fairSemaphore is a weighted semaphore that is fair between callers. A permit stands for one
// costly step or one byte. The next permits go to the waiting caller that holds the fewest, then to
// the caller whose last permits are the longest ago, then to the oldest waiter.
//
// A fairSemaphore is safe for concurrent use.
type fairSemaphore[K comparable] struct {
	limits  fairLimits
	refused prometheus.Counter
	// whenWaiting, unless it is nil, is called when a caller must wait for n permits: too few are
	// free, or the caller may not hold n more. It is called with mu held.
	whenWaiting func(caller K, n int64)

	mu      sync.Mutex
	used    int64
	grants  uint64            // so far
	callers map[K]*permitUser // those that hold permits or wait for some
	waiters list.List         // of *permitWaiter[K], in the order of arrival
}

// fairLimits are the limits of a fairSemaphore. Only perCaller and waiters may be 0.
type fairLimits struct {
	permits          int64
	perCaller        int64 // permits that one caller may hold; 0: all
	waiters          int   // queued requests of all callers; 0: no limit
	waitersPerCaller int
	wait             time.Duration // the longest time in the queue
}

// permitUser holds the numbers of a caller's permits and waiters.
type permitUser struct {
	held    int64
	waiting int
	granted uint64 // the number of the last grant; 0 before the first
}

// permitWaiter is a queued request for permits.
type permitWaiter[K comparable] struct {
	caller   K
	n        int64
	element  *list.Element // in waiters; nil once the permits are acquired
	acquired chan struct{} // closed when the permits are acquired
}

// newFairSemaphore returns a semaphore whose refusals are counted by refused.
func newFairSemaphore[K comparable](limits fairLimits, refused prometheus.Counter) *fairSemaphore[K] {
	limits.perCaller = cmp.Or(limits.perCaller, limits.permits)
	limits.waiters = cmp.Or(limits.waiters, math.MaxInt)
	return &fairSemaphore[K]{limits: limits, refused: refused, callers: map[K]*permitUser{}}
}

// acquire waits for n permits, at most for the wait limit. It returns errQueueFull at once if too
// many requests wait already, overall or for the caller. It returns errNoPermit at once if one
// caller may never hold n permits, or later if they do not become free in time or before ctx ends.
func (s *fairSemaphore[K]) acquire(ctx context.Context, caller K, n int64) error {
	w, err := s.enqueue(caller, n)
	if err == nil {
		err = s.await(ctx, w)
	}
	if err != nil {
		s.refused.Inc()
	}
	return err
}

// enqueue queues a waiter, and lets it acquire its permits at once if they are free.
func (s *fairSemaphore[K]) enqueue(caller K, n int64) (*permitWaiter[K], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.limits.perCaller {
		return nil, errNoPermit
	}
	u := s.callers[caller]
	if u == nil {
		u = &permitUser{}
	}
	if s.waiters.Len() >= s.limits.waiters || u.waiting >= s.limits.waitersPerCaller {
		return nil, errQueueFull
	}
	s.callers[caller] = u
	w := &permitWaiter[K]{caller: caller, n: n, acquired: make(chan struct{})}
	w.element = s.waiters.PushBack(w)
	u.waiting++
	s.grant()
	if s.whenWaiting != nil && w.element != nil && (s.used+n > s.limits.permits || !s.mayHold(caller, n)) {
		s.whenWaiting(caller, n)
	}
	return w, nil
}

// await waits until the permits are acquired, at most for the wait limit or until ctx ends.
func (s *fairSemaphore[K]) await(ctx context.Context, w *permitWaiter[K]) error {
	timer := time.NewTimer(s.limits.wait)
	defer timer.Stop()
	select {
	case <-w.acquired:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.element == nil { // the permits came at the same moment
		return nil
	}
	s.dequeue(w)
	s.grant() // the next waiter may need fewer
	return errNoPermit
}

// grant gives free permits to waiters. While the next waiter needs more than are free, all others
// wait too. The caller of grant holds mu.
func (s *fairSemaphore[K]) grant() {
	for {
		w := s.next()
		if w == nil || s.used+w.n > s.limits.permits {
			return
		}
		s.used += w.n
		s.grants++
		u := s.callers[w.caller]
		u.held += w.n
		u.granted = s.grants
		s.dequeue(w)
		close(w.acquired)
	}
}

// next returns the waiter that comes next. It returns nil if no waiter's caller may hold more
// permits. The caller of next holds mu.
func (s *fairSemaphore[K]) next() *permitWaiter[K] {
	var next *permitWaiter[K]
	var best *permitUser
	for e := s.waiters.Front(); e != nil; e = e.Next() {
		w, _ := e.Value.(*permitWaiter[K])
		u := s.callers[w.caller]
		if s.mayHold(w.caller, w.n) &&
			(next == nil || cmp.Or(cmp.Compare(u.held, best.held), cmp.Compare(u.granted, best.granted)) < 0) {
			next, best = w, u
		}
	}
	return next
}

// mayHold reports whether a queued caller may hold n more permits under the limit of one caller.
// The caller of mayHold holds mu.
func (s *fairSemaphore[K]) mayHold(caller K, n int64) bool {
	return s.callers[caller].held+n <= s.limits.perCaller
}

// dequeue takes a waiter out of the queue. The caller of dequeue holds mu.
func (s *fairSemaphore[K]) dequeue(w *permitWaiter[K]) {
	s.waiters.Remove(w.element)
	w.element = nil
	s.callers[w.caller].waiting--
	s.forget(w.caller)
}

// release gives back n of the permits that the caller holds.
func (s *fairSemaphore[K]) release(caller K, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	s.callers[caller].held -= n
	s.forget(caller)
	s.grant()
}

// forget deletes a caller that neither holds permits nor waits for some. The caller of forget holds
// mu.
func (s *fairSemaphore[K]) forget(caller K) {
	if u := s.callers[caller]; u.held == 0 && u.waiting == 0 {
		delete(s.callers, caller)
	}
}
