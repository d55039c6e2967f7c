package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Calls that wait for later ones delay none of them.
func TestPaceIsAnOpenLoop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const calls = 200
	var all sync.WaitGroup
	all.Add(calls)
	err := pace(ctx, 10_000, calls, func(ctx context.Context, _ int, _ time.Time) error {
		all.Done()
		begun := make(chan struct{})
		go func() { all.Wait(); close(begun) }()
		select {
		case <-begun:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPaceEndsEarly(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	err := pace(t.Context(), 10_000, math.MaxInt, func(_ context.Context, n int, _ time.Time) error {
		if n == 3 {
			return failure
		}
		return nil
	})
	if !errors.Is(err, failure) {
		t.Errorf("ended with %v, want the error of a call", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended atomic.Bool
	err = pace(ctx, 10_000, math.MaxInt, func(ctx context.Context, n int, _ time.Time) error {
		if n == 0 {
			cancel()
			time.Sleep(10 * time.Millisecond)
			ended.Store(true)
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || !ended.Load() {
		t.Errorf("ended with %v, all calls had ended: %t", err, ended.Load())
	}
}
