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

// errBusy: there is more to do than can be done in time. Who gets it has cost next to nothing, and it is not logged.
var errBusy = fmt.Errorf("%w: too many requests at once", models.ErrUnavailable)

const (
	// waitersPerSlot bounds the queue, whatever its pace promises.
	waitersPerSlot = 32
	// lastingShare is the part of the patience that is asked for while a crowd lasts.
	lastingShare = 10
	// freshEvery is how many turns go by at most until one goes to a request that has not run yet.
	freshEvery = 4
)

// admission lets as many requests run at once as the process can work on. Others wait in order, and not for long. Who
// would wait longer, at the pace of late, is refused at once. A queue is there for bursts: one that has not emptied for as
// long as anybody may wait in it is kept short, since a long one serves no more requests, but all of them late. It is safe
// for concurrent use.
type admission struct {
	slots    int           // requests that run at once; 0: no bound
	patience time.Duration // of those that wait
	now      func() time.Time
	refused  prometheus.Counter
	waited   prometheus.Histogram

	mu      sync.Mutex
	running int
	resumed list.List     // of *waiter: those that have run before; most turns are theirs, so that what was begun is finished
	fresh   list.List     // of *waiter: all others
	passed  int           // turns of late that went past those
	crowded time.Time     // since then somebody has always waited, if somebody waits
	pace    time.Duration // for which a request has held its slot, on average of late
}

// waiter waits for a slot.
type waiter struct {
	line   *list.List
	place  *list.Element // in the line; nil once it was called
	called chan struct{} // closed when it has a slot
}

func newAdmission(slots int, patience time.Duration, registry *prometheus.Registry) *admission {
	now := time.Now //nolint:forbidigo // only for the length of what runs and waits
	a := &admission{slots: slots, patience: patience, now: now}
	a.register(registry)
	return a
}

// take waits for a slot. It returns errBusy if there is none in time, and ctx's error if that ends first.
func (a *admission) take(ctx context.Context, resumes bool) error {
	began := a.now()
	w, err := a.join(began, resumes)
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

// join takes a slot if one is free (nil, nil), and else a place in the line, if there is any use in waiting.
func (a *admission) join(now time.Time, resumes bool) (*waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.slots == 0 || a.running < a.slots { // then nobody waits
		a.running++
		return nil, nil
	}
	if a.waiting() == 0 {
		a.crowded = now
	}
	line := &a.fresh
	if resumes {
		line = &a.resumed
	} else if !a.servesSoon(a.waiting()+1, now) {
		return nil, errBusy
	}
	w := &waiter{line: line, called: make(chan struct{})}
	w.place = line.PushBack(w)
	return w, nil
}

// servesSoon reports whether the last of n waiters is likely to have its turn in time.
func (a *admission) servesSoon(n int, now time.Time) bool {
	soon := a.patience
	if now.Sub(a.crowded) > a.patience { // one for each slot may wait all the same
		soon = min(soon, max(soon/lastingShare, a.pace))
	}
	return n <= waitersPerSlot*a.slots && a.pace*time.Duration(n)/time.Duration(a.slots) <= soon
}

func (a *admission) waiting() int { return a.resumed.Len() + a.fresh.Len() }

func (a *admission) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(a.patience)
	defer timer.Stop()
	var err error
	select {
	case <-w.called:
		return nil
	case <-timer.C:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !a.leave(w) { // called at the last moment
		return nil
	}
	return err
}

// leave takes a waiter out of its line; false if it has a slot already.
func (a *admission) leave(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.place == nil {
		return false
	}
	w.line.Remove(w.place)
	return true
}

// give gives a slot back that was held for so long, to whoever is first.
func (a *admission) give(held time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	const weight = 32 // of the past
	a.pace += (held - a.pace) / weight
	for _, line := range a.lines() {
		if first := line.Front(); first != nil {
			w, _ := line.Remove(first).(*waiter)
			w.place = nil
			close(w.called)
			return
		}
	}
	a.running--
}

// lines are those that wait, in the order in which they are served. Those that have run before go first, but for every now and
// then: held requests look so often that nobody else might ever have a turn.
func (a *admission) lines() [2]*list.List {
	if a.resumed.Len() > 0 && a.fresh.Len() > 0 {
		if a.passed++; a.passed == freshEvery {
			a.passed = 0
			return [2]*list.List{&a.fresh, &a.resumed}
		}
	}
	return [2]*list.List{&a.resumed, &a.fresh}
}

// slot is a request's right to run. The zero slot is of a request that needs none.
type slot struct {
	of    *admission
	since time.Time // zero while it is not held
}

// take waits for the slot; see admission.take.
func (s *slot) take(ctx context.Context, resumes bool) error {
	if s.of == nil {
		return nil
	}
	if err := s.of.take(ctx, resumes); err != nil {
		return err
	}
	s.since = s.of.now()
	return nil
}

// give gives the slot back, if it is held.
func (s *slot) give() {
	if !s.since.IsZero() {
		s.of.give(s.of.now().Sub(s.since))
		s.since = time.Time{}
	}
}

// admit is the check that gives a request its slot.
func (s *Server) admit(ctx context.Context, r *Request) error {
	if r.route.Always {
		return nil
	}
	r.slot.of = s.admission
	return r.slot.take(ctx, false)
}

// rest runs wait without the request's slot: for all that waits for somebody or something else than ourselves. An error
// is the answer, there being no slot to go on with.
func (r *Request) rest(ctx context.Context, wait func()) error {
	r.slot.give()
	wait()
	return r.slot.take(ctx, true)
}
