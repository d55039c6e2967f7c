package coalesce

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// A batched call that reaches its deadline can tell so from the end of a caller's context.
func TestCoalescerNamesItsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := Coalescer[int, int]{Call: func(ctx context.Context, _ []int) ([]int, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		if _, err := c.Do(t.Context(), 1); !errors.Is(err, ErrTimeout) {
			t.Errorf("the call ended with %v, want %v", err, ErrTimeout)
		}
	})
}
