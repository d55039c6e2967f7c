package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A fault that finds nothing to act on does not hold up the run for ever.
func TestRetryUntilDoneGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*retryWithin)
		defer cancel()
		err := retryUntilDone(ctx, func(ctx context.Context) error {
			if !sleep(ctx, 40*time.Millisecond) { // the time of an attempt
				return ctx.Err()
			}
			return errNothingInFlight
		})
		if !errors.Is(err, errNothingInFlight) || ctx.Err() != nil {
			t.Errorf("error %v, and the context %v", err, ctx.Err())
		}
	})
}
