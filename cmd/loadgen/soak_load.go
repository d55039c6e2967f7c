package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// soakRequest is a kind of request in the mix of a soak run.
type soakRequest struct {
	weight int // frequency relative to the other kinds
	send   func(*soakSite, context.Context) error
}

// soakMix is the mix of requests, as on an ordinary day.
var soakMix = []soakRequest{
	{3, (*soakSite).submitBatch},
	{1, (*soakSite).resubmitBatch},
	{1, (*soakSite).cancelBatch},
	{8, (*soakSite).readBatch},
	{3, (*soakSite).awaitBatch},
	{1, (*soakSite).batchRows},
	{4, page("list batches", map[string]string{"limit": "50"}, "billing", "batches")},
	{4, page("list customers", map[string]string{"limit": "50"}, "billing", "customers")},
	{2, page("list payment intents", map[string]string{"limit": "50"}, "checkout", "payment-intent")},
	{2, (*soakSite).listMovements},
	{1, (*soakSite).exportMovements},
	{2, (*soakSite).invite},
	{2, (*soakSite).signUpInvitee},
	{1, (*soakSite).revokeCustomer},
	{6, (*soakSite).createIntent},
	{5, (*soakSite).payIntent},
	{4, (*soakSite).awaitIntent},
	{1, (*soakSite).cancelIntent},
}

// soakLoad makes the requests of the mix for the Sites in rotation. It is safe for concurrent use.
type soakLoad struct {
	sites    []*soakSite
	recorder *soakRecorder
	schedule []int // indexes into soakMix
	sent     atomic.Int64
}

func newSoakLoad(f *soakFleet) *soakLoad {
	l := &soakLoad{recorder: f.recorder}
	for _, p := range f.partners {
		l.sites = append(l.sites, newSoakSite(p))
	}
	for i, request := range soakMix {
		l.schedule = append(l.schedule, slices.Repeat([]int{i}, request.weight)...)
	}
	return l
}

// next makes the next request of the mix. An error is a breach, unless ctx has ended.
func (l *soakLoad) next(ctx context.Context) {
	entry, caller := mix(int(l.sent.Add(1)), len(l.schedule), len(l.sites))
	request, site := soakMix[l.schedule[entry]], l.sites[caller]
	if err := request.send(site, ctx); err != nil && ctx.Err() == nil {
		l.recorder.breach("a request failed for good", "%v", err)
	}
}

// soakWorkers is the number of concurrent requests in the measurement of the capacity.
const soakWorkers = 16

// findCapacity returns the number of requests of the mix that the fleet can serve per second.
// soakWorkers goroutines make one request after another. The measured time includes the wait until
// the service has tried to debit every row.
func (s *soak) findCapacity(ctx context.Context) (float64, error) {
	defer s.soakFleet.recorder.begin(phaseCapacity)()
	began, before := time.Now(), s.load.sent.Load()
	var group sync.WaitGroup
	for range soakWorkers {
		group.Go(func() {
			for time.Since(began) < s.measured && ctx.Err() == nil {
				s.load.next(ctx)
			}
		})
	}
	group.Wait()
	sent := float64(s.load.sent.Load() - before)
	if err := s.awaitAttempts(ctx); err != nil {
		return 0, err
	}
	return sent / time.Since(began).Seconds(), nil
}

// awaitAttempts waits until the service has tried to debit every row. Rows of slow banks may still
// be open then.
func (s *soak) awaitAttempts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.settleWithin)
	defer cancel()
	return await(ctx, 50*time.Millisecond, func() (tried bool, err error) {
		err = s.fleet.store.DB().NewRaw(`
SELECT NOT EXISTS (SELECT FROM batches b JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id
                   WHERE b.settled_at IS NULL AND r.state <> 'settled' AND r.attempts = 0)`).Scan(ctx, &tried)
		return tried, err
	})
}

// runLoad makes requests at the rate per second while the events run. It ends when both the events
// and the duration are over.
func (s *soak) runLoad(ctx context.Context, rate float64) error {
	load, end := context.WithCancel(ctx)
	defer end()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := pace(load, rate, math.MaxInt, func(context.Context, int, time.Time) error {
			s.load.next(ctx)
			return nil
		})
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			return nil
		}
		return err
	})
	group.Go(func() error {
		defer end()
		began := time.Now()
		if err := s.runEvents(groupCtx, began); err != nil {
			return err
		}
		return wait(groupCtx, time.Until(began.Add(s.duration)))
	})
	return group.Wait()
}
