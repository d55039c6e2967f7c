package api

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// errBusy means that a request was shed: its wait reached the limit or was expected to exceed it,
// or the queue was full. Server.fail does not log it.
var errBusy = fmt.Errorf("%w: too many requests at once", models.ErrUnavailable)

const (
	// maxQueuePerSlot is the number of requests per slot at which the queue is full, whatever the
	// average hold time.
	maxQueuePerSlot = 32
	// sustainedDivisor shortens the wait limit under sustained load.
	sustainedDivisor = 10
	// freshInterval bounds the preference for a caller's resumed requests. While both kinds queue,
	// every freshInterval-th slot of the caller goes to a fresh request.
	freshInterval = 4
	// activeTime is the time for which a caller counts as active after a request.
	activeTime = time.Second
)

// admission limits the requests that run at once. Other requests queue for a slot, at most for the
// wait limit. A fresh request whose expected wait exceeds the limit is shed at once: acquire
// returns errBusy.
//
// A request may release its slot while it waits for something else, and then resume. Resumed
// requests queue before the caller's fresh ones, and are shed only at the wait limit.
//
// Slots are fair between callers: the next one goes to the queued caller that holds the fewest,
// then to the one whose last slot is the longest ago, then to the oldest request. If the queue is
// full, a fresh request is shed: the newest one of a caller with a longer queue, or the arriving
// one (see hasCapacity).
//
// While several callers are active, none of them gets a slot beyond half of the slots, rounded up.
// Otherwise one caller's flood would compete with all others for the CPUs.
//
// If requests have queued without a pause for longer than the wait limit, the load is sustained. A
// long queue then only delays answers, so the limit of the expected wait is divided by
// sustainedDivisor.
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
	queued      int
	arrivals    uint64                        // queued requests so far
	grants      uint64                        // slots given to queued requests so far
	callers     map[caller]*admissionCaller   // those that run or queue
	queueing    map[*admissionCaller]struct{} // those that queue
	recent      [2]arrival                    // of the two callers that came last; the latest first
	queuedSince time.Time                     // when the queue last became non-empty
	holdTime    time.Duration                 // moving average of the time that a request holds its slot
}

// arrival is the last request of a caller.
type arrival struct {
	caller caller
	at     time.Time
}

// admissionCaller holds one caller's queued requests, and counts the slots that it holds.
type admissionCaller struct {
	caller  caller
	running int
	resumed list.List // of *waiter: requests that ran before; served first, so that they finish
	fresh   list.List // of *waiter: requests that have not run yet
	skipped int       // slots given to resumed requests while fresh ones queued
	granted uint64    // the number of the last slot that a queued request got; 0 before the first
}

// waiter is a queued request.
type waiter struct {
	caller   *admissionCaller
	queue    *list.List
	element  *list.Element // in queue; nil once the waiter holds a slot or is shed
	number   uint64        // by arrival
	shed     bool          // set before acquired is closed
	acquired chan struct{} // closed when the waiter holds a slot or is shed
}

// newAdmission returns an admission and registers its metrics. 0 slots mean no limit.
func newAdmission(slots int, waitLimit time.Duration, registry *prometheus.Registry) *admission {
	now := time.Now //nolint:forbidigo // measures only how long requests run and wait
	a := &admission{
		slots: slots, waitLimit: waitLimit, now: now,
		callers: map[caller]*admissionCaller{}, queueing: map[*admissionCaller]struct{}{},
	}
	a.register(registry)
	return a
}

// acquire waits for a slot for a caller. resumes marks a request that held a slot before. acquire
// returns errBusy if the request is shed, and ctx's error if ctx ends first.
func (a *admission) acquire(ctx context.Context, by caller, resumes bool) error {
	began := a.now()
	w, err := a.enqueue(began, by, resumes)
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

// enqueue takes a free slot and returns nil, nil. If the caller can take no slot now, enqueue
// queues a waiter and returns it. It returns errBusy for a fresh request whose expected wait
// exceeds the limit, or if the queue is full. Resumed requests are always queued.
func (a *admission) enqueue(now time.Time, by caller, resumes bool) (*waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.callers[by]
	if c == nil {
		c = &admissionCaller{caller: by}
		a.callers[by] = c
	}
	a.note(by, now)
	a.grant(now)
	// If a slot is free that c may hold, c has no waiter: grant would have served it.
	if a.slots == 0 || a.running < a.slots && c.running < a.limit(now) {
		a.running++
		c.running++
		return nil, nil
	}
	if a.queued == 0 {
		a.queuedSince = now
	}
	queue := &c.fresh
	if resumes {
		queue = &c.resumed
	} else if !a.mayQueue(a.position(c), now) || !a.hasCapacity(c) {
		a.forget(c)
		return nil, errBusy
	}
	a.arrivals++
	w := &waiter{caller: c, number: a.arrivals, queue: queue, acquired: make(chan struct{})}
	w.element = queue.PushBack(w)
	a.queued++
	a.queueing[c] = struct{}{}
	return w, nil
}

// note records a request of a caller. The caller of note holds mu.
func (a *admission) note(by caller, now time.Time) {
	if a.recent[0].caller != by {
		a.recent[1] = a.recent[0]
	}
	a.recent[0] = arrival{by, now}
}

// limit returns the number of slots that one caller may hold. The caller of limit holds mu.
func (a *admission) limit(now time.Time) int {
	if now.Sub(a.recent[1].at) > activeTime {
		return a.slots
	}
	return (a.slots + 1) / 2
}

// hasOthers reports whether callers other than the given one are active.
func (a *admission) hasOthers(by caller) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.recent[0]
	if last.caller == by {
		last = a.recent[1]
	}
	return a.now().Sub(last.at) <= activeTime
}

// position returns the position, from 1, that a further request of a caller would have in the
// queue. It counts the caller's own queued requests, and the requests of other callers that would
// get a slot earlier. The caller of position holds mu.
func (a *admission) position(c *admissionCaller) int {
	n := c.queued() + 1
	for other := range a.queueing {
		if other != c {
			n += max(0, min(other.queued(), c.running+c.queued()+1-other.running))
		}
	}
	return n
}

// mayQueue reports whether the n-th queued request is expected to get a slot within the wait limit.
// Sustained load shortens the limit. The caller of mayQueue holds mu.
func (a *admission) mayQueue(n int, now time.Time) bool {
	limit := a.waitLimit
	if now.Sub(a.queuedSince) > a.waitLimit { // sustained load; even then one request per slot may queue
		limit = min(limit, max(limit/sustainedDivisor, a.holdTime))
	}
	return a.holdTime*time.Duration(n)/time.Duration(a.limit(now)) <= limit
}

// hasCapacity reports whether the queue has capacity for a fresh request of a caller. If the queue
// is full, hasCapacity sheds the newest fresh request of a caller that queues at least two more of
// them. It returns false if there is no such caller. The caller of hasCapacity holds mu.
func (a *admission) hasCapacity(c *admissionCaller) bool {
	if a.queued < maxQueuePerSlot*a.slots {
		return true
	}
	longest := c
	for other := range a.queueing {
		if other.fresh.Len() > longest.fresh.Len()+1 {
			longest = other
		}
	}
	if longest == c {
		return false
	}
	w, _ := longest.fresh.Back().Value.(*waiter)
	w.shed = true
	a.dequeue(w)
	a.forget(longest)
	close(w.acquired)
	return true
}

// queued returns the number of the caller's queued requests.
func (c *admissionCaller) queued() int { return c.resumed.Len() + c.fresh.Len() }

// await waits until a waiter holds a slot or is shed, at most for the wait limit or until ctx ends.
func (a *admission) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(a.waitLimit)
	defer timer.Stop()
	var err error
	select {
	case <-w.acquired:
		return w.result()
	case <-timer.C:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !a.remove(w) { // granted or shed at the same moment
		return w.result()
	}
	return err
}

// result returns errBusy if the request was shed, nil if it holds a slot.
func (w *waiter) result() error {
	if w.shed {
		return errBusy
	}
	return nil
}

// remove takes a waiter out of its queue. It returns false if the waiter has left it already.
func (a *admission) remove(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.element == nil {
		return false
	}
	a.dequeue(w)
	a.forget(w.caller)
	return true
}

// dequeue takes a waiter out of its queue. The caller of dequeue holds mu.
func (a *admission) dequeue(w *waiter) {
	w.queue.Remove(w.element)
	w.element = nil
	a.queued--
	if w.caller.queued() == 0 {
		delete(a.queueing, w.caller)
	}
}

// forget deletes a caller that neither runs nor queues. The caller of forget holds mu.
func (a *admission) forget(c *admissionCaller) {
	if c.running+c.queued() == 0 {
		delete(a.callers, c.caller)
	}
}

// release gives back a slot that its caller has held for the given time.
func (a *admission) release(by caller, used time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	const weight = 32 // the latest hold time counts 1/weight in the moving average
	a.holdTime += (used - a.holdTime) / weight
	a.running--
	c := a.callers[by]
	c.running--
	a.grant(a.now())
	a.forget(c)
}

// grant gives free slots to waiters. The caller of grant holds mu.
func (a *admission) grant(now time.Time) {
	for limit := a.limit(now); a.running < a.slots; {
		w := a.next(limit)
		if w == nil {
			return
		}
		a.running++
		a.grants++
		w.caller.running++
		w.caller.granted = a.grants
		a.dequeue(w)
		close(w.acquired)
	}
}

// next returns the waiter for the next slot. It returns nil if every queued caller already holds
// limit slots, or none is queued. The caller of next holds mu.
func (a *admission) next(limit int) *waiter {
	var next *admissionCaller
	for c := range a.queueing {
		if c.running < limit && (next == nil || c.before(next)) {
			next = c
		}
	}
	if next == nil {
		return nil
	}
	w, _ := next.nextQueue().Front().Value.(*waiter)
	return w
}

// before reports whether the next slot goes to this caller rather than to the other one.
func (c *admissionCaller) before(other *admissionCaller) bool {
	return cmp.Or(cmp.Compare(c.running, other.running), cmp.Compare(c.granted, other.granted),
		cmp.Compare(c.oldest(), other.oldest())) < 0
}

// oldest returns the number of the caller's oldest waiter. The caller must have a waiter.
func (c *admissionCaller) oldest() uint64 {
	oldest := uint64(math.MaxUint64)
	for _, queue := range []*list.List{&c.resumed, &c.fresh} {
		if first := queue.Front(); first != nil {
			w, _ := first.Value.(*waiter)
			oldest = min(oldest, w.number)
		}
	}
	return oldest
}

// nextQueue returns the queue that gets the caller's next slot, and counts this choice. Resumed
// requests come first, except for every freshInterval-th slot. Otherwise long polls, which resume
// often, would starve fresh requests.
func (c *admissionCaller) nextQueue() *list.List {
	switch {
	case c.resumed.Len() == 0:
		return &c.fresh
	case c.fresh.Len() == 0:
		return &c.resumed
	}
	if c.skipped++; c.skipped == freshInterval {
		c.skipped = 0
		return &c.fresh
	}
	return &c.resumed
}
