package models_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestAdvanceClock(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	var sum time.Duration
	for _, by := range []time.Duration{0, time.Millisecond, 1999 * time.Microsecond, 24 * time.Hour} {
		sum += by.Truncate(time.Millisecond)
		now, err := store.AdvanceClock(ctx, by)
		must(t, err)
		read, err := store.Now(ctx)
		must(t, err)
		again, advanced, err := store.Clock(ctx)
		must(t, err)
		if want := noon.Add(sum); now != want || read != want || again != want || advanced != sum {
			t.Errorf("after %v: returned %d, read %d and %d, %v ahead; want %d, %v ahead", by, now, read, again,
				advanced, want,
				sum)
		}
	}
	for _, by := range []time.Duration{
		-1, -time.Hour, models.MaxClockOffset, models.MaxClockOffset + time.Millisecond, math.MaxInt64, math.MinInt64,
	} {
		if _, err := store.AdvanceClock(ctx, by); !errors.Is(err, models.ErrClockRange) {
			t.Errorf("by %v: %v, want ErrClockRange", by, err)
		}
	}
	_, err := store.AdvanceClock(ctx, models.MaxClockOffset-sum)
	must(t, err)
	if _, err := store.AdvanceClock(ctx, time.Millisecond); !errors.Is(err, models.ErrClockRange) {
		t.Errorf("beyond the most: %v, want ErrClockRange", err)
	}
}

// TestAdvanceClockAtOnce checks that concurrent steps all count.
func TestAdvanceClockAtOnce(t *testing.T) {
	t.Parallel()
	const callers = 20
	ctx, store := t.Context(), modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if _, err := store.AdvanceClock(ctx, time.Hour); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	now, err := store.Now(ctx)
	must(t, err)
	if want := noon.Add(callers * time.Hour); now != want {
		t.Errorf("the clock is at %d, want %d", now, want)
	}
}

// TestNowRuns compares the running clock with this machine's, which is also the database's.
func TestNowRuns(t *testing.T) {
	t.Parallel()
	before := models.MillisOf(time.Now())
	now, err := modelstest.Open(t).Now(t.Context())
	must(t, err)
	// The database rounds to milliseconds, up as well as down.
	if after := models.MillisOf(time.Now()) + 1; now < before || now > after {
		t.Errorf("the clock says %d, want from %d to %d", now, before, after)
	}
}
