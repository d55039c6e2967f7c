package coalesce

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
)

// SingleFlight merges concurrent calls of the same key into one call, and all callers share its
// result. Unlike with golang.org/x/sync/singleflight, no caller's context can end the call of the
// others. Timeout must be set. It is safe for concurrent use.
type SingleFlight[R any] struct {
	// Timeout bounds one call.
	Timeout time.Duration

	group singleflight.Group
}

// Do makes a call, or joins the running one of the same key, and returns its result. The call's
// context carries the values of the first caller's ctx and the deadline of Timeout. The call does
// not end with any caller's context. If ctx ends first, Do returns ctx.Err(), and the call still
// runs to its end. A panic of the call becomes an error that wraps ErrPanic.
func (f *SingleFlight[R]) Do(ctx context.Context, key string, call func(context.Context) (R, error)) (R, error) {
	var none R
	results := f.group.DoChan(key, func() (_ any, err error) {
		defer CatchPanic(&err)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.Timeout)
		defer cancel()
		return call(ctx)
	})
	select {
	case result := <-results:
		value, _ := result.Val.(R) // no value after a panic
		return value, result.Err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
