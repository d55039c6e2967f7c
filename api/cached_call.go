package api

import (
	"context"
	"sync"
	"time"

	"partnerbilling/models/coalesce"
)

// cachedCall caches the result of an expensive call for maxAge, errors included, and merges
// concurrent calls into one. It is safe for concurrent use.
type cachedCall[T any] struct {
	call   func(context.Context) (T, error)
	maxAge time.Duration
	now    func() time.Time
	flight coalesce.SingleFlight[struct{}]

	mu    sync.Mutex
	value T
	err   error
	at    time.Time // when the cached call returned; zero before the first
}

// newCachedCall returns a cachedCall whose every call ends after timeout. A maxAge of 0 only merges
// concurrent calls.
func newCachedCall[T any](
	maxAge, timeout time.Duration, call func(context.Context) (T, error),
) *cachedCall[T] {
	now := time.Now //nolint:forbidigo // measures only the age of a result
	return &cachedCall[T]{
		call: call, maxAge: maxAge, now: now, flight: coalesce.SingleFlight[struct{}]{Timeout: timeout},
	}
}

// get returns the cached result, or makes the call. The call outlives ctx, because other callers
// may wait for it. get waits for the end of the call too, so that the error is always the call's
// own.
func (c *cachedCall[T]) get(ctx context.Context) (T, error) {
	if value, err, ok := c.cached(); ok {
		return value, err
	}
	_, err := c.flight.Do(context.WithoutCancel(ctx), "", func(ctx context.Context) (struct{}, error) {
		if _, _, ok := c.cached(); ok { // a concurrent call has just returned
			return struct{}{}, nil
		}
		value, err := c.call(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.value, c.err, c.at = value, err, c.now()
		return struct{}{}, nil
	})
	if err != nil { // the call has panicked
		var none T
		return none, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.err
}

// cached returns the cached result; ok reports whether it is younger than maxAge.
func (c *cachedCall[T]) cached() (value T, err error, ok bool) { //nolint:revive // the error is a part of the result
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.err, !c.at.IsZero() && c.now().Sub(c.at) < c.maxAge
}
