package queue_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

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
		for range 5 {
			group.Go(func() error {
				for left := events / 2 / 5; left > 0; {
					left -= limiter.Take(t.Context(), models.OrganisationID{}, left)
				}
				return t.Context().Err()
			})
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

// A burst that is there goes to one who wants it in one piece, as far as one question goes.
func TestFleetLimiterHandsOutSeveralTurnsAtOnce(t *testing.T) {
	t.Parallel()
	limiter := queue.NewFleetLimiter(queuetest.Client(t, queuetest.Redis(t)), "rail", 40)
	for _, want := range []struct{ wanted, got int }{{0, 0}, {-1, 0}, {5, 5}, {100, 32}} {
		if got := limiter.Take(t.Context(), models.OrganisationID{1}, want.wanted); got != want.got {
			t.Errorf("%d turns of %d, want %d", got, want.wanted, want.got)
		}
	}
}

// At a rate that is used up, what is used up has been handed out. (1.5 turns come between two questions: to ask for those that there
// are at most would lose the half, each time.)
func TestFleetLimiterHandsOutWhatItUses(t *testing.T) {
	t.Parallel()
	const perSecond = 150
	client := queuetest.Client(t, queuetest.Redis(t))
	limiter := queue.NewFleetLimiter(client, "rail", perSecond)
	take := func(turns int) {
		for turns > 0 {
			turns -= limiter.Take(t.Context(), models.OrganisationID{}, min(turns, 10))
		}
	}
	usedUntil := func() float64 { // in seconds: the script's own record
		t.Helper()
		at, err := client.Get(t.Context(), "rate:rail").Float64()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	take(perSecond) // the burst
	before := usedUntil()
	take(100)
	if used := (usedUntil() - before) * perSecond; used > 125 { // a little is the machine's, should it stand still for a second
		t.Errorf("100 turns have used up %.1f", used)
	}
}

func TestFleetLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	limiter := queue.NewFleetLimiter(queuetest.Client(t, server.URL), "rail", 1000)
	server.Kill()
	for range 10 {
		if n := limiter.Take(t.Context(), models.OrganisationID{}, 3); n < 1 || n > 3 {
			t.Fatalf("took %d of 3", n)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if n := limiter.Take(ended, models.OrganisationID{}, 1); n != 0 {
		t.Errorf("took %d after the context's end", n)
	}
}

// TestFleetLimiterLetsOrganisationsTakeTurns lets one organisation want everything before another comes.
func TestFleetLimiterLetsOrganisationsTakeTurns(t *testing.T) {
	t.Parallel()
	for name, each := range map[string]int{"one at a time": 1, "many at a time": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := queue.NewFleetLimiter(queuetest.Client(t, queuetest.Redis(t)), "rail", 20)
			large, small := models.OrganisationID{1}, models.OrganisationID{2}
			ctx, end := context.WithCancel(t.Context())
			var group sync.WaitGroup
			var passed atomic.Int64
			for range 200 {
				group.Go(func() {
					for ctx.Err() == nil {
						passed.Add(int64(limiter.Take(ctx, large, each)))
					}
				})
			}
			for passed.Load() < 20 { // the burst is used up
				runtime.Gosched()
			}
			before := passed.Load()
			soon, stop := context.WithTimeout(ctx, time.Minute)
			defer stop()
			for left := 5; left > 0 && soon.Err() == nil; {
				left -= limiter.Take(soon, small, left)
			}
			if n := passed.Load() - before; n > 10 {
				t.Errorf("the small organisation's 5 turns waited for %d of the large one's", n)
			}
			end()
			group.Wait()
		})
	}
}

// allowances counts the turns that Redis has allowed, and the questions that it has not answered in time.
type allowances struct{ turns, unanswered atomic.Int64 }

func (a *allowances) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (a *allowances) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if answered := redis.Error(nil); err != nil && !errors.As(err, &answered) {
			a.unanswered.Add(1)
		}
		if script, ok := cmd.(*redis.Cmd); ok && err == nil {
			if answer, ok := script.Val().([]any); ok {
				a.turns.Add(answer[0].(int64)) //nolint:forcetypeassert // the limiter's scripts answer with that
			}
		}
		return err
	}
}

func (a *allowances) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestFleetLimiterHandsOutWhatIsAllowed lets takers of several organisations in several processes come and leave at random. What they
// get is never more than Redis has allowed, and, among those who stay, all of it.
func TestFleetLimiterHandsOutWhatIsAllowed(t *testing.T) {
	t.Parallel()
	url, runs := queuetest.Redis(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		perSecond := rapid.SampledFrom([]float64{200, 1000, 5000}).Draw(rt, "per second")
		name := string(rune('a'+runs%26)) + time.Now().Format(time.RFC3339Nano)
		var allowed, taken atomic.Int64
		var takers sync.WaitGroup
		leavers := false
		var counters []*allowances
		for range rapid.IntRange(1, 3).Draw(rt, "processes") {
			counter, client := &allowances{}, queuetest.Client(t, url)
			client.AddHook(counter)
			counters = append(counters, counter)
			limiter := queue.NewFleetLimiter(client, name, perSecond)
			for i := range rapid.IntRange(1, 6).Draw(rt, "takers") {
				wanted := rapid.IntRange(1, 60).Draw(rt, "wanted")
				leaves := rapid.IntRange(0, 4).Draw(rt, "leaves") == 0
				after := time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "after")) * time.Microsecond
				leavers = leavers || leaves
				takers.Go(func() {
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					if leaves {
						defer time.AfterFunc(after, leave).Stop()
					}
					for left := wanted; left > 0; {
						n := limiter.Take(ctx, models.OrganisationID{byte(i % 3)}, left)
						if n < 0 || n > left || n == 0 && ctx.Err() == nil {
							t.Errorf("took %d of %d", n, left)
						}
						if n == 0 {
							return
						}
						taken.Add(int64(n))
						left -= n
					}
				})
			}
		}
		takers.Wait()
		for _, counter := range counters {
			allowed.Add(counter.turns.Load())
			if counter.unanswered.Load() > 0 {
				return // a process has gone by its own count
			}
		}
		if got, most := taken.Load(), allowed.Load(); got > most || got < most && !leavers {
			rt.Fatalf("%d turns were taken, and %d allowed", got, most)
		}
	})
}
