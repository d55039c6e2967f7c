package queue_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

func TestFleetLimiterIsSharedByProcesses(t *testing.T) {
	t.Parallel()
	url := queuetest.Redis(t)
	const perSecond, tokens = 50, 100
	began := time.Now()
	var group errgroup.Group
	for range 2 { // processes
		limiter := queue.NewFleetLimiter(queuetest.Client(t, url), "rail", perSecond, nil)
		for range 5 {
			group.Go(func() error {
				for left := tokens / 2 / 5; left > 0; {
					left -= limiter.Take(t.Context(), models.OrganisationID{}, left)
				}
				return t.Context().Err()
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	minimum := time.Second * (tokens - perSecond) / perSecond * 9 / 10 // the burst is free
	if took := time.Since(began); took < minimum {
		t.Errorf("%d tokens at %d a second took %s, want at least %s", tokens, perSecond, took, minimum)
	}
}

// One call of Take gets several tokens, up to those of one request.
func TestFleetLimiterHandsOutSeveralTokensAtOnce(t *testing.T) {
	t.Parallel()
	limiter := queue.NewFleetLimiter(queuetest.Client(t, queuetest.Redis(t)), "rail", 40, nil)
	for _, want := range []struct{ wanted, got int }{{0, 0}, {-1, 0}, {5, 5}, {100, 32}} {
		if got := limiter.Take(t.Context(), models.OrganisationID{1}, want.wanted); got != want.got {
			t.Errorf("%d tokens of %d, want %d", got, want.wanted, want.got)
		}
	}
}

// The limiter hands out every token that it takes from Redis. At this rate 1.5 tokens accrue
// between two requests, and a request must not discard the half.
func TestFleetLimiterHandsOutWhatItTakes(t *testing.T) {
	t.Parallel()
	const perSecond = 150
	client := queuetest.Client(t, queuetest.Redis(t))
	limiter := queue.NewFleetLimiter(client, "rail", perSecond, nil)
	take := func(tokens int) {
		for tokens > 0 {
			tokens -= limiter.Take(t.Context(), models.OrganisationID{}, min(tokens, 10))
		}
	}
	usedUntil := func() float64 { // redis_rate's own record, in seconds
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
	if used := (usedUntil() - before) * perSecond; used > 125 { // with a margin for a machine that stalls
		t.Errorf("100 tokens cost %.1f", used)
	}
}

func TestFleetLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	limiter := queue.NewFleetLimiter(queuetest.Client(t, server.URL), "rail", 1000, nil)
	server.Kill()
	for range 10 {
		if n := limiter.Take(t.Context(), models.OrganisationID{}, 3); n < 1 || n > 3 {
			t.Fatalf("took %d of 3", n)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if n := limiter.Take(cancelled, models.OrganisationID{}, 1); n != 0 {
		t.Errorf("took %d after the context ended", n)
	}
}

// While Redis hangs, only one request a second waits for it, and a process has its full local rate.
func TestFleetLimiterWithAHangingRedis(t *testing.T) {
	t.Parallel()
	target, err := queue.ParseRedis("redis://"+localtest.SilentAddress(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := target.Connect()
	t.Cleanup(func() { _ = client.Close() })
	const perSecond, tokens, each = 1000, 2000, 5
	limiter := queue.NewFleetLimiter(client, "rail", perSecond, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began, taken := time.Now(), 0
	for taken < tokens && ctx.Err() == nil {
		taken += limiter.Take(ctx, models.OrganisationID{}, min(each, tokens-taken))
	}
	took := time.Since(began)
	if taken < tokens {
		t.Errorf("%d tokens at %d a second in %s, want %d", taken, perSecond, took, tokens)
	}
	minimum := time.Second * (tokens - perSecond) / perSecond * 9 / 10 // the burst is free
	if taken == tokens && took < minimum {
		t.Errorf("%d tokens at %d a second took %s, want at least %s", tokens, perSecond, took, minimum)
	}
}

// An organisation that wants few tokens gets them in rotation with one that has wanted all before.
func TestFleetLimiterRotatesOrganisations(t *testing.T) {
	t.Parallel()
	for name, each := range map[string]int{"one at a time": 1, "many at a time": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limiter := queue.NewFleetLimiter(queuetest.Client(t, queuetest.Redis(t)), "rail", 20, nil)
			large, small := models.OrganisationID{1}, models.OrganisationID{2}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var group sync.WaitGroup
			var passed atomic.Int64
			for range 200 {
				group.Go(func() {
					for ctx.Err() == nil {
						passed.Add(int64(limiter.Take(ctx, large, each)))
					}
				})
			}
			for deadline := time.Now().Add(time.Minute); passed.Load() < 20; { // until the burst is used up
				if time.Now().After(deadline) {
					t.Fatalf("only %d tokens of the burst were handed out", passed.Load())
				}
				runtime.Gosched()
			}
			before := passed.Load()
			limited, stop := context.WithTimeout(ctx, time.Minute)
			defer stop()
			for left := 5; left > 0 && limited.Err() == nil; {
				left -= limiter.Take(limited, small, left)
			}
			if n := passed.Load() - before; n > 10 {
				t.Errorf("the small organisation's 5 tokens waited for %d of the large one's", n)
			}
			cancel()
			group.Wait()
		})
	}
}

// allowances counts the tokens that Redis allowed, and the requests without an answer.
type allowances struct{ tokens, unanswered atomic.Int64 }

// count is a queuetest.CommandHook.
func (a *allowances) count(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if answered := redis.Error(nil); err != nil && !errors.As(err, &answered) {
		a.unanswered.Add(1)
	}
	if script, ok := cmd.(*redis.Cmd); ok && err == nil {
		if answer, ok := script.Val().([]any); ok {
			a.tokens.Add(answer[0].(int64)) // the number of allowed tokens
		}
	}
	return err
}

// Callers of several organisations in several processes come and give up at random. Together they
// never get more tokens than Redis allowed. If no caller gives up, they get all of them.
func TestFleetLimiterHandsOutWhatIsAllowed(t *testing.T) {
	t.Parallel()
	url, runs := queuetest.Redis(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		perSecond := rapid.SampledFrom([]float64{200, 1000, 5000}).Draw(rt, "per second")
		name := string(rune('a'+runs%26)) + time.Now().Format(time.RFC3339Nano)
		var allowed, taken atomic.Int64
		var callers sync.WaitGroup
		someGiveUp := false
		var counters []*allowances
		for range rapid.IntRange(1, 3).Draw(rt, "processes") {
			counter, client := &allowances{}, queuetest.Client(t, url)
			client.AddHook(queuetest.CommandHook(counter.count))
			counters = append(counters, counter)
			limiter := queue.NewFleetLimiter(client, name, perSecond, nil)
			for i := range rapid.IntRange(1, 6).Draw(rt, "callers") {
				wanted := rapid.IntRange(1, 60).Draw(rt, "wanted")
				givesUp := rapid.IntRange(0, 4).Draw(rt, "gives up") == 0
				after := time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "after")) * time.Microsecond
				someGiveUp = someGiveUp || givesUp
				callers.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if givesUp {
						defer time.AfterFunc(after, cancel).Stop()
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
		callers.Wait()
		for _, counter := range counters {
			allowed.Add(counter.tokens.Load())
			if counter.unanswered.Load() > 0 {
				return // a process has used its local limiter
			}
		}
		if got, limit := taken.Load(), allowed.Load(); got > limit || got < limit && !someGiveUp {
			rt.Fatalf("%d tokens were taken, and %d allowed", got, limit)
		}
	})
}
