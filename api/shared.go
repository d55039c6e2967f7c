package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// shared does something that costs once for all who ask at the same time, and again only when what came of it is older than
// maxAge. It is safe for concurrent use.
type shared[T any] struct {
	do     func(context.Context) (T, error)
	maxAge time.Duration
	now    func() time.Time
	flight singleflight.Group

	mu    sync.Mutex
	value T
	err   error
	at    time.Time // zero: not done yet
}

func newShared[T any](maxAge time.Duration, do func(context.Context) (T, error)) *shared[T] {
	var now = time.Now
	return &shared[T]{do: do, maxAge: maxAge, now: now}
}

// get is what came of it. It does not end with the caller's context, since others may wait for it.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	if value, err, ok := s.latest(); ok {
		return value, err
	}
	_, _, _ = s.flight.Do("", func() (any, error) {
		if _, _, ok := s.latest(); ok { // another caller was faster
			return nil, nil
		}
		value, err := s.do(context.WithoutCancel(ctx))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.value, s.err, s.at = value, err, s.now()
		return nil, nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.err
}

func (s *shared[T]) latest() (value T, err error, ok bool) { //nolint:revive // the error is a part of what is shared
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.err, !s.at.IsZero() && s.now().Sub(s.at) < s.maxAge
}
