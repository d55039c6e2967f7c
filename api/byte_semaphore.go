package api

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// bodyWaitLimit is the longest time that a body waits for memory.
	bodyWaitLimit = 2 * time.Second
	// bodyGrace is the time after which an unfinished body may lose its memory to a waiting one.
	bodyGrace = 2 * time.Second
	// maxBodyWaiters bounds the queue of a semaphore, and maxCallerBodyWaiters that of one caller.
	maxBodyWaiters       = 1024
	maxCallerBodyWaiters = 64
)

// byteSemaphore bounds the bytes of request bodies in memory. A body acquires its bytes before it
// is read, and its request releases them at the end.
//
// It differs from golang.org/x/sync/semaphore in three ways. The next bytes go to the waiting
// caller that holds the fewest. No caller holds more than half, or has more than
// maxCallerBodyWaiters in the queue. If a body waits, unfinished ones that have been arriving for
// longer than bodyGrace are aborted, oldest first: those of any caller, or of its own caller if that
// may not hold more.
//
// A byteSemaphore is safe for concurrent use.
type byteSemaphore struct {
	capacity  int64
	perCaller int64 // the most that one caller holds
	metrics   bodyMemoryMetrics

	mu       sync.Mutex
	used     int64
	held     map[string]int64 // by caller
	waiting  map[string]int   // waiters by caller
	waiters  list.List        // of *byteWaiter, in the order of arrival
	arriving list.List        // of *byteLease with an unfinished body, oldest first
}

// byteLease is the right of a request to keep a body in memory. Its methods do nothing on nil.
type byteLease struct {
	semaphore *byteSemaphore
	caller    string
	bytes     int64
	began     time.Time
	abort     func()        // makes the reading of the body fail
	element   *list.Element // in arriving; nil once the body is complete or aborted
	aborted   bool
}

// byteWaiter is a queued request for a lease.
type byteWaiter struct {
	lease    *byteLease
	element  *list.Element // in waiters; nil once the bytes are acquired
	acquired chan struct{} // closed when the bytes are acquired
}

// newByteSemaphore returns a semaphore of at least minimum bytes. One caller may hold half of them,
// and at least the minimum.
func newByteSemaphore(capacity, minimum int64, metrics bodyMemoryMetrics) *byteSemaphore {
	capacity = max(capacity, minimum)
	metrics.limit.Set(float64(capacity))
	return &byteSemaphore{
		capacity: capacity, perCaller: max(capacity/2, minimum), metrics: metrics, held: map[string]int64{},
		waiting: map[string]int{},
	}
}

// acquire waits for the bytes of a body, at most bodyWaitLimit. abort is called, from another
// goroutine and at most once, if the body must give up its bytes before it is complete. abort must
// not call the semaphore, which is locked. acquire returns errNoBodyMemory if the queue is full,
// the caller may not hold as many bytes, or they do not become free in time or before ctx ends.
func (s *byteSemaphore) acquire(ctx context.Context, caller string, bytes int64, abort func()) (*byteLease, error) {
	w := &byteWaiter{
		lease:    &byteLease{semaphore: s, caller: caller, bytes: bytes, abort: abort},
		acquired: make(chan struct{}),
	}
	err := s.enqueue(w)
	if err == nil {
		err = s.await(ctx, w)
	}
	if err != nil {
		s.metrics.full.Inc()
		return nil, err
	}
	return w.lease, nil
}

// enqueue queues a waiter, and lets it acquire its bytes at once if they are free. If the semaphore
// is full, it aborts as many unfinished bodies as the waiter needs.
func (s *byteSemaphore) enqueue(w *byteWaiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiters.Len() >= maxBodyWaiters || s.waiting[w.lease.caller] >= maxCallerBodyWaiters ||
		w.lease.bytes > s.perCaller {
		return errNoBodyMemory
	}
	w.element = s.waiters.PushBack(w)
	s.waiting[w.lease.caller]++
	s.grant()
	if w.element != nil && s.used+w.lease.bytes > s.capacity {
		s.abortOldest(w.lease)
	}
	return nil
}

// grant gives free bytes to waiters. Among those whose caller may hold more, the caller that holds
// the fewest comes first, then the oldest waiter. The caller of grant holds mu.
func (s *byteSemaphore) grant() {
	for {
		w := s.next()
		if w == nil || s.used+w.lease.bytes > s.capacity {
			return
		}
		s.dequeue(w)
		s.add(w.lease.caller, w.lease.bytes)
		w.lease.began = time.Now() //nolint:forbidigo // measures only how long a client takes
		w.lease.element = s.arriving.PushBack(w.lease)
		close(w.acquired)
	}
}

// next returns the waiter that comes next, nil if no waiter's caller may hold more. The caller of
// next holds mu.
func (s *byteSemaphore) next() *byteWaiter {
	var next *byteWaiter
	for e := s.waiters.Front(); e != nil; e = e.Next() {
		w, _ := e.Value.(*byteWaiter)
		if s.mayHold(w.lease) && (next == nil || s.held[w.lease.caller] < s.held[next.lease.caller]) {
			next = w
		}
	}
	return next
}

// mayHold reports whether a waiting lease keeps its caller within the bytes of one caller. The
// caller of mayHold holds mu.
func (s *byteSemaphore) mayHold(l *byteLease) bool { return s.held[l.caller]+l.bytes <= s.perCaller }

// abortOldest aborts unfinished bodies that have been arriving for longer than bodyGrace, oldest
// first, until the aborted ones held the bytes of the waiting lease. If its caller may not hold
// more, only that caller's bodies are aborted: it could not acquire the bytes of others. The caller
// of abortOldest holds mu.
func (s *byteSemaphore) abortOldest(waiting *byteLease) {
	ofAny, wanted := s.mayHold(waiting), waiting.bytes
	var next *list.Element
	for e := s.arriving.Front(); e != nil && wanted > 0; e = next {
		next = e.Next()
		l, _ := e.Value.(*byteLease)
		if time.Since(l.began) < bodyGrace {
			return
		}
		if !ofAny && l.caller != waiting.caller {
			continue
		}
		l.leaveArriving()
		l.aborted = true
		wanted -= l.bytes
		s.metrics.aborted.Inc()
		l.abort()
	}
}

func (s *byteSemaphore) await(ctx context.Context, w *byteWaiter) error {
	timer := time.NewTimer(bodyWaitLimit)
	defer timer.Stop()
	select {
	case <-w.acquired:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if !s.remove(w) { // the bytes came at the same moment
		return nil
	}
	return errNoBodyMemory
}

// remove takes a waiter out of the queue. It returns false if the waiter holds its bytes already.
func (s *byteSemaphore) remove(w *byteWaiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.element == nil {
		return false
	}
	s.dequeue(w)
	s.grant() // the next one may need less
	return true
}

// dequeue takes a waiter out of the queue. The caller of dequeue holds mu.
func (s *byteSemaphore) dequeue(w *byteWaiter) {
	s.waiters.Remove(w.element)
	w.element = nil
	decrement(s.waiting, w.lease.caller)
}

// add changes the bytes in use. The caller of add holds mu.
func (s *byteSemaphore) add(caller string, bytes int64) {
	s.used += bytes
	if s.held[caller] += bytes; s.held[caller] == 0 {
		delete(s.held, caller)
	}
	s.metrics.inUse.Set(float64(s.used))
}

// leaveArriving takes the lease out of the unfinished ones. The caller of leaveArriving holds mu.
func (l *byteLease) leaveArriving() {
	if l.element != nil {
		l.semaphore.arriving.Remove(l.element)
		l.element = nil
	}
}

// complete marks the body as complete, and gives back what it did not need. It returns false if the
// body was aborted.
func (l *byteLease) complete(size int) bool {
	if l == nil {
		return true
	}
	s := l.semaphore
	s.mu.Lock()
	defer s.mu.Unlock()
	l.leaveArriving()
	if surplus := l.bytes - int64(size); surplus > 0 {
		l.bytes -= surplus
		s.add(l.caller, -surplus)
		s.grant()
	}
	return !l.aborted
}

// release gives the bytes back. It may be called twice.
func (l *byteLease) release() {
	if l == nil || l.bytes == 0 {
		return
	}
	s := l.semaphore
	s.mu.Lock()
	defer s.mu.Unlock()
	l.leaveArriving()
	s.add(l.caller, -l.bytes)
	l.bytes = 0
	s.grant()
}
