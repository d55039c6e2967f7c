package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// A fault that finds nothing to act on does not hold up the run for ever.
func TestRetryUntilDoneGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*retryWithin)
		defer cancel()
		err := retryUntilDone(ctx, func(context.Context) error { return errNothingInFlight })
		if !errors.Is(err, errNothingInFlight) || ctx.Err() != nil {
			t.Errorf("error %v, and the context %v", err, ctx.Err())
		}
	})
}
