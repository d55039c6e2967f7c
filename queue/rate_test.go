package queue_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

func TestFleetLimiterIsSharedByProcesses(t *testing.T) {
	t.Parallel()
	url := queuetest.Redis(t)
	const perSecond, events = 50, 100
	began := time.Now()
	var group errgroup.Group
	for range 2 { // processes
		limiter := queue.NewFleetLimiter(queuetest.Client(t, url), "rail", perSecond)
		for range events / 2 {
			group.Go(func() error { return limiter.Wait(t.Context(), models.OrganisationID{}) })
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	least := time.Second * (events - perSecond) / perSecond * 9 / 10 // a burst of one second's worth comes at once
	if took := time.Since(began); took < least {
		t.Errorf("%d events at %d a second took %s, less than %s", events, perSecond, took, least)
	}
}

func TestFleetLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	limiter := queue.NewFleetLimiter(queuetest.Client(t, server.URL), "rail", 1000)
	server.Kill()
	for range 10 {
		if err := limiter.Wait(t.Context(), models.OrganisationID{}); err != nil {
			t.Fatal(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := limiter.Wait(ended, models.OrganisationID{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
}

// TestFleetLimiterLetsOrganisationsTakeTurns lets one organisation want everything before another comes.
func TestFleetLimiterLetsOrganisationsTakeTurns(t *testing.T) {
	t.Parallel()
	limiter := queue.NewFleetLimiter(queuetest.Client(t, queuetest.Redis(t)), "rail", 20)
	large, small := models.OrganisationID{1}, models.OrganisationID{2}
	ctx, end := context.WithCancel(t.Context())
	var group errgroup.Group
	var passed atomic.Int64
	for range 2000 { // a hundred seconds' worth
		group.Go(func() error {
			if limiter.Wait(ctx, large) == nil {
				passed.Add(1)
			}
			return nil
		})
	}
	for passed.Load() < 20 { // the burst is used up
		runtime.Gosched()
	}
	before := passed.Load()
	for range 5 {
		if err := limiter.Wait(ctx, small); err != nil {
			t.Fatal(err)
		}
	}
	if n := passed.Load() - before; n > 100 {
		t.Errorf("the small organisation's 5 events waited for %d of the large one's", n)
	}
	end()
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}
