package api

import (
	"context"
	"time"
)

// slot is a permit to run, which an admission grants. Requests hold one, and so do the polls on
// their behalf. The zero slot needs no permit.
type slot struct {
	admission *admission
	caller    caller
	since     time.Time // when the slot was acquired; zero while it is not held
}

// acquire waits for the slot; see admission.acquire. resumes marks a request that held a slot
// before, or a later step of a held request or stream.
func (s *slot) acquire(ctx context.Context, resumes bool) error {
	if s.admission == nil {
		return nil
	}
	if err := s.admission.acquire(ctx, s.caller, resumes); err != nil {
		return err
	}
	s.since = s.admission.now()
	return nil
}

// reacquire waits for the slot again, unless it is held.
func (s *slot) reacquire(ctx context.Context) error {
	if !s.since.IsZero() {
		return nil
	}
	return s.acquire(ctx, true)
}

// release gives the slot back if it is held.
func (s *slot) release() {
	if !s.since.IsZero() {
		s.admission.release(s.caller, s.admission.now().Sub(s.since))
		s.since = time.Time{}
	}
}

// stepSlot returns a slot for steps that run apart from the request, such as those of a stream.
// They count for the authenticated caller, even if the request's own slot does not.
func (r *Request) stepSlot() slot {
	return slot{admission: r.slot.admission, caller: callerOf(&r.Principal)}
}

// admit is the check that acquires a request's slot. The slot counts for the caller that
// callerCache knows.
func (s *Server) admit(ctx context.Context, r *Request) error {
	if r.route.SkipAdmission {
		return nil
	}
	r.slot.admission, r.slot.caller = s.admission, s.callers.of(r)
	return r.slot.acquire(ctx, false)
}

// withoutSlot releases the request's slot, runs wait, and acquires a slot again. It is for waits
// for a client, an event or another service. After an error the request has no slot: the handler
// must return the error.
func (r *Request) withoutSlot(ctx context.Context, wait func()) error {
	r.slot.release()
	wait()
	return r.slot.reacquire(ctx)
}

// pause waits for minPollInterval without a slot, or until ctx ends. Handlers call it between two
// polls.
func (r *Request) pause(ctx context.Context) error {
	return r.withoutSlot(ctx, func() {
		timer := time.NewTimer(minPollInterval)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	})
}
