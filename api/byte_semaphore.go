package api

import (
	"container/list"
	"context"
	"fmt"
	"time"
)

const (
	// bodyWaitLimit is the longest time that a body waits for memory. A complete large body may
	// wait as long again for its permit of bodyMemory.handled.
	bodyWaitLimit = 2 * time.Second
	// bodyGrace is the time after which an unfinished body may lose its memory to a waiting one.
	bodyGrace = 2 * time.Second
	// maxBodyWaiters bounds the queue of a semaphore, and maxCallerBodyWaiters that of one caller.
	maxBodyWaiters       = 1024
	maxCallerBodyWaiters = 64
)

// byteSemaphore bounds the bytes of request bodies in memory. A body acquires its bytes before it
// is read, and its request releases them at the end. One caller may hold half of the bytes; see
// newByteSemaphore. If a body must wait, unfinished bodies that have been arriving for longer than
// bodyGrace are aborted, oldest first. If the waiting caller is at its own limit, only its own
// bodies are aborted.
//
// A byteSemaphore is safe for concurrent use.
type byteSemaphore struct {
	*fairSemaphore[string]
	metrics bodyMemoryMetrics

	arriving list.List // of *byteLease with an unfinished body, oldest first; guarded by mu
}

// byteLease is the right of a request to keep a body in memory. complete and release do nothing on
// nil.
type byteLease struct {
	semaphore *byteSemaphore
	caller    string
	bytes     int64
	began     time.Time
	abort     func()        // makes the reading of the body fail
	element   *list.Element // in arriving; nil once the body is complete or aborted
	aborted   bool
}

// newByteSemaphore returns a semaphore of capacity bytes, but at least minimum. One caller may hold
// half of the bytes, but at least minimum.
func newByteSemaphore(capacity, minimum int64, metrics bodyMemoryMetrics) *byteSemaphore {
	capacity = max(capacity, minimum)
	metrics.limit.Set(float64(capacity))
	s := &byteSemaphore{metrics: metrics, fairSemaphore: newFairSemaphore[string](fairLimits{
		permits: capacity, perCaller: max(capacity/2, minimum), waiters: maxBodyWaiters,
		waitersPerCaller: maxCallerBodyWaiters, wait: bodyWaitLimit,
	}, metrics.full)}
	s.whenWaiting = s.abortOldest
	return s
}

// acquire waits for the bytes of a body, at most bodyWaitLimit. abort is called, from another
// goroutine and at most once, if the body must give up its bytes before it is complete. abort must
// not call the semaphore, which is locked. acquire returns errNoBodyMemory if the queue is full, or
// if one caller may never hold so many bytes. It returns the same error if the bytes do not become
// free in time or before ctx ends.
func (s *byteSemaphore) acquire(ctx context.Context, caller string, bytes int64, abort func()) (*byteLease, error) {
	if err := s.fairSemaphore.acquire(ctx, caller, bytes); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBodyMemory, err)
	}
	s.metrics.inUse.Add(float64(bytes))
	l := &byteLease{semaphore: s, caller: caller, bytes: bytes, abort: abort}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.began = time.Now() //nolint:forbidigo // measures only how long a client takes
	l.element = s.arriving.PushBack(l)
	return l, nil
}

// abortOldest aborts unfinished bodies that have been arriving for longer than bodyGrace, oldest
// first. It stops once the aborted bodies together held at least the wanted bytes. If the waiting
// caller may not hold more, the bytes of others would not help it. Then only its own bodies are
// aborted. The caller of abortOldest holds mu.
func (s *byteSemaphore) abortOldest(caller string, wanted int64) {
	ofAny := s.mayHold(caller, wanted)
	var next *list.Element
	for e := s.arriving.Front(); e != nil && wanted > 0; e = next {
		next = e.Next()
		l, _ := e.Value.(*byteLease)
		if time.Since(l.began) < bodyGrace {
			return
		}
		if !ofAny && l.caller != caller {
			continue
		}
		s.arriving.Remove(e)
		l.element, l.aborted = nil, true
		wanted -= l.bytes
		s.metrics.aborted.Inc()
		l.abort()
	}
}

// leaveArriving takes the lease off the list of unfinished bodies. It returns false if the body was
// aborted.
func (l *byteLease) leaveArriving() bool {
	l.semaphore.mu.Lock()
	defer l.semaphore.mu.Unlock()
	if l.element != nil {
		l.semaphore.arriving.Remove(l.element)
		l.element = nil
	}
	return !l.aborted
}

// shrink reduces the lease to the given number of bytes, and gives the rest back.
func (l *byteLease) shrink(bytes int64) {
	if surplus := l.bytes - bytes; surplus > 0 {
		l.bytes = bytes
		l.semaphore.metrics.inUse.Sub(float64(surplus))
		l.semaphore.release(l.caller, surplus)
	}
}

// complete marks a body of size bytes as complete, and gives back the bytes that it did not need.
// It returns false if the body was aborted.
func (l *byteLease) complete(size int) bool {
	if l == nil {
		return true
	}
	isWhole := l.leaveArriving()
	l.shrink(int64(size))
	return isWhole
}

// release gives all bytes back. It may be called twice.
func (l *byteLease) release() {
	if l != nil {
		l.leaveArriving()
		l.shrink(0)
	}
}
