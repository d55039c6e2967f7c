// Package coalesce merges concurrent calls: Coalescer merges requests into one batched call, and
// SingleFlight merges calls of the same key.
package coalesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// coalescerMaxBatch is the maximum number of requests in one batch.
	coalescerMaxBatch = 256
	// coalescerTimeout bounds one batched call.
	coalescerTimeout = 10 * time.Second
)

// ErrTimeout is the cause, by context.Cause, of the end of a batched call's context at its
// deadline. It tells the call that the batch took too long, and that no caller has given up.
var ErrTimeout = errors.New("coalesce: the batched call took too long")

// Coalescer merges concurrent calls into one batched call. Requests that arrive during a batched
// call form the next batch, so an idle Coalescer adds no delay unless MinInterval is set. It runs
// one goroutine, and only while requests wait. It is safe for concurrent use.
type Coalescer[A, R any] struct {
	// Call answers a batch of at most 256 requests. It returns one value for each request, in their
	// order, or an error for all of them. Its context has a deadline of 10 s, with the cause
	// ErrTimeout, and does not end with any caller's context. A panic of Call becomes an error that
	// wraps ErrPanic.
	Call func(ctx context.Context, requests []A) ([]R, error)
	// MinInterval is the minimum time between batches. A full batch starts at once. So does a batch
	// after MinInterval without one. 0: no minimum.
	MinInterval time.Duration

	mu      sync.Mutex
	waiting []coalesced[A, R]
	running bool
	full    chan struct{}    // closed when a full batch waits; nil unless run pauses
	next    <-chan time.Time // fires when the next batch may start; nil: at once
}

// coalesced is one waiting request and the channel of its answer.
type coalesced[A, R any] struct {
	ctx     context.Context // of the caller; once it ends, the request is dropped
	request A
	reply   chan<- reply[R]
}

// reply is the answer to one request.
type reply[R any] struct {
	value R
	err   error
}

// Do adds a request to the next batch and waits for its answer. If ctx ends first, Do returns
// ctx.Err(). A batched call that has begun still runs to its end. A caller that must learn the
// result passes a context without cancellation: the answer still arrives within a bounded time.
func (c *Coalescer[A, R]) Do(ctx context.Context, request A) (R, error) {
	got := make(chan reply[R], 1)
	c.mu.Lock()
	c.waiting = append(c.waiting, coalesced[A, R]{ctx, request, got})
	first := !c.running
	c.running = true
	if c.full != nil && len(c.waiting) >= coalescerMaxBatch {
		close(c.full)
		c.full = nil
	}
	c.mu.Unlock()
	if first {
		go c.run(context.WithoutCancel(ctx))
	}
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// run answers batches until no request waits.
func (c *Coalescer[A, R]) run(ctx context.Context) {
	for {
		c.pause()
		c.mu.Lock()
		n := min(len(c.waiting), coalescerMaxBatch)
		batch := c.waiting[:n:n]
		c.waiting = c.waiting[n:]
		c.running = n > 0
		c.mu.Unlock()
		if n == 0 {
			return
		}
		batch = slices.DeleteFunc(batch, func(r coalesced[A, R]) bool { return r.ctx.Err() != nil })
		if len(batch) > 0 {
			c.answer(ctx, batch)
		}
	}
}

// pause waits until the next batch may start: MinInterval after the last one, or when a full batch
// waits.
func (c *Coalescer[A, R]) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.MinInterval == 0 || len(c.waiting) == 0 {
		return
	}
	if next := c.next; next != nil && len(c.waiting) < coalescerMaxBatch {
		full := make(chan struct{})
		c.full = full
		c.mu.Unlock()
		select {
		case <-next:
		case <-full:
		}
		c.mu.Lock()
		c.full = nil
	}
	c.next = time.After(c.MinInterval)
}

// answer makes one batched call and sends each request its answer.
func (c *Coalescer[A, R]) answer(ctx context.Context, batch []coalesced[A, R]) {
	ctx, cancel := context.WithTimeoutCause(ctx, coalescerTimeout, ErrTimeout)
	defer cancel()
	requests := make([]A, len(batch))
	for i := range batch {
		requests[i] = batch[i].request
	}
	values, err := c.call(ctx, requests)
	for i := range batch {
		a := reply[R]{err: err}
		if err == nil {
			a.value = values[i]
		}
		batch[i].reply <- a
	}
}

// call turns a panic of Call, or a wrong number of values, into an error for the whole batch.
func (c *Coalescer[A, R]) call(ctx context.Context, requests []A) (values []R, err error) {
	defer CatchPanic(&err)
	values, err = c.Call(ctx, requests)
	if err == nil && len(values) != len(requests) {
		return nil, fmt.Errorf("coalesce: %d values for %d requests", len(values), len(requests))
	}
	return values, err
}
