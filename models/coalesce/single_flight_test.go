package coalesce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"partnerbilling/models/coalesce"
)

type traceKey struct{}

// A caller that leaves gets its own context's error. Neither the first nor a later one ends the
// call of the others.
func TestSingleFlightOutlivesItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		flight := coalesce.SingleFlight[int]{Timeout: time.Minute}
		calls, finish := 0, make(chan struct{})
		call := func(ctx context.Context) (int, error) {
			calls++
			if ctx.Value(traceKey{}) != "first" {
				t.Error("the call has not the values of the first caller")
			}
			select {
			case <-finish:
				return 7, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		first, leave := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "first"))
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := flight.Do(first, "key", call)
			left <- err
		}()
		synctest.Wait()
		go func() {
			value, err := flight.Do(t.Context(), "key", call)
			if value != 7 {
				t.Errorf("the second caller got %d", value)
			}
			stayed <- err
		}()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the first caller got %v", err)
		}
		close(finish)
		if err := <-stayed; err != nil {
			t.Errorf("the second caller got %v", err)
		}
		if calls != 1 {
			t.Errorf("made %d calls", calls)
		}
	})
}

func TestSingleFlightHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		flight := coalesce.SingleFlight[int]{Timeout: time.Minute}
		began := time.Now()
		_, err := flight.Do(t.Context(), "key", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != flight.Timeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestSingleFlightOutlivesAPanic(t *testing.T) {
	t.Parallel()
	flight := coalesce.SingleFlight[int]{Timeout: time.Minute}
	_, err := flight.Do(t.Context(), "key", func(context.Context) (int, error) { panic("broken") })
	if !errors.Is(err, coalesce.ErrPanic) {
		t.Errorf("a panic: %v", err)
	}
	value, err := flight.Do(t.Context(), "key", func(context.Context) (int, error) { return 7, nil })
	if value != 7 || err != nil {
		t.Errorf("after a panic: %d, %v", value, err)
	}
}
