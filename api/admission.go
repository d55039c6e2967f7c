package api

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// errBusy means that the request was shed: it got no slot within the wait limit, or was not
// expected to get one. It is not logged.
var errBusy = fmt.Errorf("%w: too many requests at once", models.ErrUnavailable)

const (
	// maxQueuePerSlot bounds the queue's length independently of the average hold time.
	maxQueuePerSlot = 32
	// sustainedDivisor shortens the wait limit under sustained load.
	sustainedDivisor = 10
	// freshInterval n gives every n-th slot to a fresh request while fresh and resumed ones queue.
	freshInterval = 4
)

// admission limits the requests that run at once. Other requests queue for a slot, at most for the
// wait limit. A request whose expected wait exceeds the limit is shed at once.
//
// If the queue has not been empty for longer than the wait limit, the load is sustained. A long
// queue then only delays answers, so the wait limit is divided by sustainedDivisor.
//
// An admission is safe for concurrent use.
type admission struct {
	slots     int           // requests that run at once; 0 means unlimited
	waitLimit time.Duration // the longest time in the queue
	now       func() time.Time
	refused   prometheus.Counter
	waited    prometheus.Histogram

	mu          sync.Mutex
	running     int
	resumed     list.List     // of *waiter: requests that ran before; served first, so that they finish
	fresh       list.List     // of *waiter: requests that have not run yet
	skipped     int           // slots given to resumed requests while fresh ones queued
	queuedSince time.Time     // when the first request of the present queue came; stale while it is empty
	holdTime    time.Duration // moving average of the time that a request holds its slot
}

// waiter is a queued request.
type waiter struct {
	queue    *list.List
	element  *list.Element // in queue; nil once the waiter holds a slot
	acquired chan struct{} // closed when the waiter holds a slot
}

func newAdmission(slots int, waitLimit time.Duration, registry *prometheus.Registry) *admission {
	now := time.Now //nolint:forbidigo // measures only how long requests run and wait
	a := &admission{slots: slots, waitLimit: waitLimit, now: now}
	a.register(registry)
	return a
}

// acquire waits for a slot. It returns errBusy if the request is shed, and ctx's error if ctx ends
// first.
func (a *admission) acquire(ctx context.Context, resumes bool) error {
	began := a.now()
	w, err := a.enqueue(began, resumes)
	if w != nil {
		err = a.await(ctx, w)
	}
	if errors.Is(err, errBusy) {
		a.refused.Inc()
	}
	if err != nil {
		return err
	}
	a.waited.Observe(a.now().Sub(began).Seconds())
	return nil
}

// enqueue takes a free slot and returns nil, nil. Without a free slot it queues a waiter. It
// returns errBusy for a fresh request whose expected wait exceeds the limit; resumed requests are
// not refused.
func (a *admission) enqueue(now time.Time, resumes bool) (*waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.slots == 0 || a.running < a.slots { // a free slot implies an empty queue
		a.running++
		return nil, nil
	}
	if a.queued() == 0 {
		a.queuedSince = now
	}
	queue := &a.fresh
	if resumes {
		queue = &a.resumed
	} else if !a.accepts(a.queued()+1, now) {
		return nil, errBusy
	}
	w := &waiter{queue: queue, acquired: make(chan struct{})}
	w.element = queue.PushBack(w)
	return w, nil
}

// accepts reports whether the last of n queued requests is expected to get a slot within the wait
// limit.
func (a *admission) accepts(n int, now time.Time) bool {
	limit := a.waitLimit
	if now.Sub(a.queuedSince) > a.waitLimit { // sustained load; one request per slot may queue all the same
		limit = min(limit, max(limit/sustainedDivisor, a.holdTime))
	}
	return n <= maxQueuePerSlot*a.slots && a.holdTime*time.Duration(n)/time.Duration(a.slots) <= limit
}

// queued returns the length of the queue. The caller holds mu.
func (a *admission) queued() int { return a.resumed.Len() + a.fresh.Len() }

func (a *admission) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(a.waitLimit)
	defer timer.Stop()
	var err error
	select {
	case <-w.acquired:
		return nil
	case <-timer.C:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !a.remove(w) { // the slot came at the same moment
		return nil
	}
	return err
}

// remove takes a waiter out of its queue. It returns false if the waiter already holds a slot.
func (a *admission) remove(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.element == nil {
		return false
	}
	w.queue.Remove(w.element)
	return true
}

// release gives back a slot that was in use for the given time. The next waiter gets it, if any.
func (a *admission) release(used time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	const weight = 32 // of the past in the moving average
	a.holdTime += (used - a.holdTime) / weight
	for _, queue := range a.queues() {
		if first := queue.Front(); first != nil {
			w, _ := queue.Remove(first).(*waiter)
			w.element = nil
			close(w.acquired)
			return
		}
	}
	a.running--
}

// queues returns the queues in the order of service for the next slot. Resumed requests come first,
// except for every freshInterval-th slot: long polls resume often enough to starve fresh requests.
func (a *admission) queues() [2]*list.List {
	if a.resumed.Len() > 0 && a.fresh.Len() > 0 {
		if a.skipped++; a.skipped == freshInterval {
			a.skipped = 0
			return [2]*list.List{&a.fresh, &a.resumed}
		}
	}
	return [2]*list.List{&a.resumed, &a.fresh}
}

// slot is a request's permit to run. The zero slot belongs to a request that needs none.
type slot struct {
	admission *admission
	since     time.Time // when the slot was acquired; zero while it is not held
}

// acquire waits for the slot; see admission.acquire.
func (s *slot) acquire(ctx context.Context, resumes bool) error {
	if s.admission == nil {
		return nil
	}
	if err := s.admission.acquire(ctx, resumes); err != nil {
		return err
	}
	s.since = s.admission.now()
	return nil
}

// release gives the slot back if it is held.
func (s *slot) release() {
	if !s.since.IsZero() {
		s.admission.release(s.admission.now().Sub(s.since))
		s.since = time.Time{}
	}
}

// admit is the check that acquires the request's slot.
func (s *Server) admit(ctx context.Context, r *Request) error {
	if r.route.SkipAdmission {
		return nil
	}
	r.slot.admission = s.admission
	return r.slot.acquire(ctx, false)
}

// withoutSlot releases the request's slot, runs wait and acquires a slot again. It serves waits for
// a client, an event or another service. The error, if any, is the answer: the request is shed.
func (r *Request) withoutSlot(ctx context.Context, wait func()) error {
	r.slot.release()
	wait()
	return r.slot.acquire(ctx, true)
}
