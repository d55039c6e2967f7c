package main

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// pace calls do n times at a rate per second, each in a goroutine of its own when it is due, and
// waits for all calls. A late call does not delay the next ones. The first error, or the end of
// ctx, ends it early and is returned.
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

// callsIn returns the number of calls of a rate per second in the duration.
func callsIn(duration time.Duration, rate float64) int { return int(rate * duration.Seconds()) }
