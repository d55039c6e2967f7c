package main

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// pace calls do n times at a rate per second, each time in a goroutine of its own, and waits for
// all calls. do gets the number of the call, from 0, and the time when the call is due. A slow call
// does not delay the next ones. The first error, or the end of ctx, ends pace early and is
// returned.
func pace(
	ctx context.Context, rate float64, n int, do func(ctx context.Context, n int, due time.Time) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	began, timer := time.Now(), time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			err := ctx.Err()
			return cmp.Or(group.Wait(), err)
		}
		group.Go(func() error { return do(ctx, i, due) })
	}
	return group.Wait()
}

// callsIn returns the number of calls in the duration at a rate per second.
func callsIn(duration time.Duration, rate float64) int { return int(rate * duration.Seconds()) }
