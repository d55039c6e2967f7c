package api_test

import (
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"partnerbilling/api"
	"partnerbilling/models"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	client, err := queue.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newLimiter(t testing.TB, url string, rates map[api.RateClass]api.Rate) *api.RedisLimiter {
	t.Helper()
	limiter := api.NewLimiterWithLongTimeout(connect(t, url), rates)
	t.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			t.Error(err)
		}
	})
	return limiter
}

// slow is a rate at which no token refills during a test.
var slow = map[api.RateClass]api.Rate{
	api.RateDefault: {PerSecond: 0.001, Burst: 5},
	api.RateBatches: {PerSecond: 0.001, Burst: 2},
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want api.Rate
		ok   bool
	}{
		{"100", api.Rate{PerSecond: 100, Burst: 200}, true},
		{"0.5", api.Rate{PerSecond: 0.5, Burst: 1}, true},
		{"0.001", api.Rate{PerSecond: 0.001, Burst: 1}, true},
		{"1.3", api.Rate{PerSecond: 1.3, Burst: 3}, true},
		{"off", api.Rate{}, true},
		{"", api.Rate{}, false},
		{"OFF", api.Rate{}, false},
		{"0", api.Rate{}, false},
		{"-1", api.Rate{}, false},
		{"NaN", api.Rate{}, false},
		{"Inf", api.Rate{}, false},
		{"1e9", api.Rate{}, false},
		{"100/s", api.Rate{}, false},
		{" 100", api.Rate{}, false},
	}
	for _, tt := range tests {
		got, err := api.ParseRate(tt.text, 2)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("%q: %v, %v; want %v", tt.text, got, err, tt.want)
		}
	}
}

func TestRateDivide(t *testing.T) {
	t.Parallel()
	for whole, want := range map[api.Rate]api.Rate{
		{PerSecond: 100, Burst: 200}: {PerSecond: 10, Burst: 100},
		{PerSecond: 1, Burst: 2}:     {PerSecond: 0.1, Burst: 1},
		{PerSecond: 0.1, Burst: 1}:   {PerSecond: 0.01, Burst: 1},
		{}:                           {},
	} {
		if got := whole.Divide(10); got != want {
			t.Errorf("a tenth of %v: %v, want %v", whole, got, want)
		}
	}
}

func TestLimiterCounts(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, queuetest.Redis(t), slow)
	take := func(class api.RateClass) api.Decision { return l.Take(t.Context(), client, class) }
	about := cmp.Comparer(func(x, y time.Duration) bool { return math.Abs(float64(x-y)) < float64(time.Minute) })

	want := api.Decision{Allowed: true, Limits: []api.Limit{
		{Name: "default", Quota: 5, Window: 5000 * time.Second, Remaining: 4, Reset: 1000 * time.Second},
		{Name: "batches", Quota: 2, Window: 2000 * time.Second, Remaining: 1, Reset: 1000 * time.Second},
	}}
	if diff := cmp.Diff(want, take(api.RateBatches), about); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	take(api.RateBatches)
	refused := api.Decision{RetryAfter: 1000 * time.Second, Limits: []api.Limit{
		{Name: "default", Quota: 5, Window: 5000 * time.Second, Remaining: 3, Reset: 2000 * time.Second},
		{Name: "batches", Quota: 2, Window: 2000 * time.Second, Remaining: 0, Reset: 2000 * time.Second},
	}}
	for range 3 { // a refusal takes no token
		if diff := cmp.Diff(refused, take(api.RateBatches), about); diff != "" {
			t.Errorf("third batch (-want +got):\n%s", diff)
		}
	}
	for _, left := range []int64{2, 1, 0} {
		if d := take(api.RateDefault); !d.Allowed || len(d.Limits) != 1 || d.Limits[0].Remaining != left {
			t.Errorf("others: %+v, want %d left", d, left)
		}
	}
	if d := take(api.RateDefault); d.Allowed || d.RetryAfter == 0 {
		t.Errorf("sixth: %+v", d)
	}
	if d := l.Take(t.Context(), models.ClientID{9}, api.RateDefault); !d.Allowed {
		t.Error("another client is refused")
	}
}

func TestLimiterRefills(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, queuetest.Redis(t), map[api.RateClass]api.Rate{api.RateDefault: {PerSecond: 0.5, Burst: 1}})
	refused := 0
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for again := 0; again < 2; {
		switch d := l.Take(ctx, client, api.RateDefault); {
		case ctx.Err() != nil:
			t.Fatal("never refilled")
		case d.Allowed:
			again++
		default:
			refused++
			if d.RetryAfter <= 0 || d.RetryAfter > 2*time.Second {
				t.Fatalf("retry after %s", d.RetryAfter)
			}
		}
	}
	if refused == 0 {
		t.Error("a burst of 1 allowed 2")
	}
}

func TestLimiterUnderConcurrency(t *testing.T) {
	t.Parallel()
	url := queuetest.Redis(t)
	first, second := newLimiter(t, url, slow), newLimiter(t, url, slow) // two processes
	var taking sync.WaitGroup
	var allowed atomic.Int64
	for i := range 20 {
		taking.Go(func() {
			l := first
			if i%2 == 0 {
				l = second
			}
			if d := l.Take(t.Context(), client, api.RateDefault); d.Allowed && !d.Limits[0].Unknown {
				allowed.Add(1)
			}
		})
	}
	taking.Wait()
	if n := allowed.Load(); n > 5 {
		t.Errorf("%d allowed, want 5", n)
	}
}

func TestLimiterOff(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, "redis://127.0.0.1:1", nil)
	if diff := cmp.Diff(api.Decision{Allowed: true}, l.Take(t.Context(), client, api.RateBatches)); diff != "" {
		t.Errorf("off (-want +got):\n%s", diff)
	}
	l = newLimiter(t, queuetest.Redis(t), map[api.RateClass]api.Rate{api.RateBatches: {PerSecond: 1, Burst: 1}})
	if d := l.Take(t.Context(), client, api.RateBatches); len(d.Limits) != 1 || d.Limits[0].Name != "batches" {
		t.Errorf("default off: %+v", d)
	}
}

// unknown is the decision of a limiter that cannot reach Redis.
var unknown = api.Decision{Allowed: true, Limits: []api.Limit{{Name: "default", Quota: 5, Unknown: true}}}

func TestLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	l := newLimiter(t, server.URL, slow)
	if d := l.Take(t.Context(), client, api.RateDefault); d.Limits[0].Remaining != 4 {
		t.Fatalf("with Redis: %+v", d)
	}
	server.Kill()
	for range 100 {
		d := l.Take(t.Context(), client, api.RateDefault)
		if diff := cmp.Diff(unknown, d, cmpopts.IgnoreFields(api.Limit{}, "Window")); diff != "" {
			t.Fatalf("without Redis (-want +got):\n%s", diff)
		}
	}
	server.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for again := time.NewTicker(100 * time.Millisecond); ; <-again.C {
		if d := l.Take(ctx, client, api.RateDefault); !d.Limits[0].Unknown {
			again.Stop()
			return
		}
		if ctx.Err() != nil {
			t.Fatal("Redis is back, and nobody asks it")
		}
	}
}

// A Redis that accepts connections and never answers delays one request by 50 ms at most, and the
// next ones not at all.
func TestLimiterWithHangingRedis(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	l := api.NewRedisLimiter(connect(t, "redis://"+ln.Addr().String()), slow)
	t.Cleanup(func() { _ = l.Close() })
	var taking sync.WaitGroup
	var longest atomic.Int64
	for range 50 {
		taking.Go(func() {
			started := time.Now()
			if d := l.Take(t.Context(), client, api.RateDefault); !d.Allowed || !d.Limits[0].Unknown {
				t.Errorf("a hanging Redis decides: %+v", d)
			}
			if took := int64(time.Since(started)); took > longest.Load() {
				longest.Store(took)
			}
		})
	}
	taking.Wait()
	if took := time.Duration(longest.Load()); took > 500*time.Millisecond { // 50 ms, with a margin for a busy machine
		t.Errorf("took %s", took)
	}
	started := time.Now()
	for range 1000 {
		l.Take(t.Context(), client, api.RateDefault)
	}
	if took := time.Since(started); took > 600*time.Millisecond {
		t.Errorf("1000 requests right after a failure took %s", took)
	}
}
