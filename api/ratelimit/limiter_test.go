package ratelimit_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"partnerbilling/api/ratelimit"
	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var client = models.ClientID{1}

func newLimiter(t testing.TB, url string, rates map[ratelimit.Class]ratelimit.Rate) *ratelimit.Limiter {
	t.Helper()
	limiter := ratelimit.NewWithLongTimeout(queuetest.Client(t, url), rates)
	t.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			t.Error(err)
		}
	})
	return limiter
}

// slow is a rate at which no token refills during a test.
var slow = map[ratelimit.Class]ratelimit.Rate{
	ratelimit.Default: {PerSecond: 0.001, Burst: 5},
	ratelimit.Batches: {PerSecond: 0.001, Burst: 2},
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want ratelimit.Rate
		ok   bool
	}{
		{"100", ratelimit.Rate{PerSecond: 100, Burst: 200}, true},
		{"0.5", ratelimit.Rate{PerSecond: 0.5, Burst: 1}, true},
		{"0.001", ratelimit.Rate{PerSecond: 0.001, Burst: 1}, true},
		{"1.3", ratelimit.Rate{PerSecond: 1.3, Burst: 3}, true},
		{"off", ratelimit.Rate{}, true},
		{"", ratelimit.Rate{}, false},
		{"OFF", ratelimit.Rate{}, false},
		{"0", ratelimit.Rate{}, false},
		{"-1", ratelimit.Rate{}, false},
		{"NaN", ratelimit.Rate{}, false},
		{"Inf", ratelimit.Rate{}, false},
		{"100000", ratelimit.Rate{PerSecond: 100_000, Burst: 200_000}, true},
		{"100001", ratelimit.Rate{}, false},
		{"1e9", ratelimit.Rate{}, false},
		{"100/s", ratelimit.Rate{}, false},
		{" 100", ratelimit.Rate{}, false},
	}
	for _, tt := range tests {
		got, err := ratelimit.ParseRate(tt.text, 2)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("%q: %v, %v; want %v", tt.text, got, err, tt.want)
		}
	}
}

// Every rate that can be configured is met within a tenth, and never exceeded.
func TestRatesAreKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// The logarithm of the rate, so that all magnitudes are tried.
		text := fmt.Sprintf("%.4f", math.Pow(10, rapid.Float64Range(-2.9, 5).Draw(t, "magnitude")))
		rate, err := ratelimit.ParseRate(text, 1)
		if err != nil {
			t.Fatal(err)
		}
		kept := 1 / rate.Interval().Seconds()
		if kept > rate.PerSecond*(1+1e-9) || kept < 0.9*rate.PerSecond {
			t.Errorf("%s a second are kept as %f", text, kept)
		}
	})
}

func TestRateDivide(t *testing.T) {
	t.Parallel()
	for whole, want := range map[ratelimit.Rate]ratelimit.Rate{
		{PerSecond: 100, Burst: 200}: {PerSecond: 10, Burst: 100},
		{PerSecond: 1, Burst: 2}:     {PerSecond: 0.1, Burst: 1},
		{PerSecond: 0.1, Burst: 1}:   {PerSecond: 0.01, Burst: 1},
		{}:                           {},
	} {
		if got := whole.Divide(10, 10); got != want {
			t.Errorf("a tenth of %v: %v, want %v", whole, got, want)
		}
	}
}

func TestLimiterCounts(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, queuetest.Redis(t), slow)
	take := func(class ratelimit.Class) ratelimit.Decision { return l.Take(t.Context(), client, class) }
	about := cmp.Comparer(func(x, y time.Duration) bool { return math.Abs(float64(x-y)) < float64(time.Minute) })

	want := ratelimit.Decision{Allowed: true, Limits: []ratelimit.Limit{
		{Name: "default", Quota: 5, Window: 5000 * time.Second, Remaining: 4, Reset: 1000 * time.Second},
		{Name: "batches", Quota: 2, Window: 2000 * time.Second, Remaining: 1, Reset: 1000 * time.Second},
	}}
	if diff := cmp.Diff(want, take(ratelimit.Batches), about); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	take(ratelimit.Batches)
	refused := ratelimit.Decision{RetryAfter: 1000 * time.Second, Limits: []ratelimit.Limit{
		{Name: "default", Quota: 5, Window: 5000 * time.Second, Remaining: 3, Reset: 2000 * time.Second},
		{Name: "batches", Quota: 2, Window: 2000 * time.Second, Remaining: 0, Reset: 2000 * time.Second},
	}}
	for range 3 { // a refusal takes no token
		if diff := cmp.Diff(refused, take(ratelimit.Batches), about); diff != "" {
			t.Errorf("third batch (-want +got):\n%s", diff)
		}
	}
	for _, left := range []int64{2, 1, 0} {
		if d := take(ratelimit.Default); !d.Allowed || len(d.Limits) != 1 || d.Limits[0].Remaining != left {
			t.Errorf("others: %+v, want %d left", d, left)
		}
	}
	if d := take(ratelimit.Default); d.Allowed || d.RetryAfter == 0 {
		t.Errorf("sixth: %+v", d)
	}
	if d := l.Take(t.Context(), models.ClientID{9}, ratelimit.Default); !d.Allowed {
		t.Error("another client is refused")
	}
}

func TestLimiterRefills(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, queuetest.Redis(t),
		map[ratelimit.Class]ratelimit.Rate{ratelimit.Default: {PerSecond: 0.5, Burst: 1}})
	refused := 0
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for again := 0; again < 2; {
		switch d := l.Take(ctx, client, ratelimit.Default); {
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
			if d := l.Take(t.Context(), client, ratelimit.Default); d.Allowed && isCounted(d) {
				allowed.Add(1)
			}
		})
	}
	taking.Wait()
	if n := allowed.Load(); n > 5 {
		t.Errorf("%d allowed, want 5", n)
	}
}

// The buckets of a Cluster are on several servers, each of which has to learn the script.
func TestLimiterOnACluster(t *testing.T) {
	t.Parallel()
	redis, err := queue.ConnectURL(queuetest.Cluster(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	l := ratelimit.NewWithLongTimeout(redis, slow)
	t.Cleanup(func() { _ = l.Close() })
	var taking sync.WaitGroup
	for i := range 20 {
		taking.Go(func() {
			for n := range 3 {
				d := l.Take(t.Context(), models.ClientID{byte(i)}, ratelimit.Batches)
				if d.Allowed != (n < 2) || !isCounted(d) {
					t.Errorf("client %d, batch %d: %+v", i, n, d)
				}
			}
		})
	}
	taking.Wait()
}

func TestLimiterOff(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, "redis://127.0.0.1:1", nil)
	if diff := cmp.Diff(ratelimit.Decision{Allowed: true}, l.Take(t.Context(), client, ratelimit.Batches)); diff != "" {
		t.Errorf("off (-want +got):\n%s", diff)
	}
	l = newLimiter(t, queuetest.Redis(t),
		map[ratelimit.Class]ratelimit.Rate{ratelimit.Batches: {PerSecond: 1, Burst: 1}})
	if d := l.Take(t.Context(), client, ratelimit.Batches); len(d.Limits) != 1 || d.Limits[0].Name != "batches" {
		t.Errorf("default off: %+v", d)
	}
}

// uncounted is the decision of a limiter that cannot reach Redis: no token is taken.
var uncounted = ratelimit.Decision{Allowed: true, Limits: []ratelimit.Limit{{Name: "default", Quota: 5, Remaining: 5}}}

// isCounted reports whether Redis has counted an allowed request.
func isCounted(d ratelimit.Decision) bool { return d.Limits[0].Remaining < d.Limits[0].Quota }

func TestLimiterWithoutRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	l := newLimiter(t, server.URL, slow)
	if d := l.Take(t.Context(), client, ratelimit.Default); d.Limits[0].Remaining != 4 {
		t.Fatalf("with Redis: %+v", d)
	}
	server.Kill()
	for range 100 {
		d := l.Take(t.Context(), client, ratelimit.Default)
		if diff := cmp.Diff(uncounted, d, cmpopts.IgnoreFields(ratelimit.Limit{}, "Window")); diff != "" {
			t.Fatalf("without Redis (-want +got):\n%s", diff)
		}
	}
	server.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for again := time.NewTicker(100 * time.Millisecond); ; <-again.C {
		if d := l.Take(ctx, client, ratelimit.Default); isCounted(d) {
			again.Stop()
			return
		}
		if ctx.Err() != nil {
			t.Fatal("Redis is back, and the limiter does not ask it")
		}
	}
}

// A Redis that accepts connections and never answers delays one request by 50 ms at most, and the
// next ones not at all.
func TestLimiterWithHangingRedis(t *testing.T) {
	t.Parallel()
	address, err := queue.ParseRedis("redis://"+localtest.SilentAddress(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := ratelimit.New(address.ConnectBriefly(ratelimit.Timeout), slow)
	t.Cleanup(func() { _ = l.Close() })
	var taking sync.WaitGroup
	var longest atomic.Int64
	for range 50 {
		taking.Go(func() {
			started := time.Now()
			if d := l.Take(t.Context(), client, ratelimit.Default); !d.Allowed || isCounted(d) {
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
		l.Take(t.Context(), client, ratelimit.Default)
	}
	if took := time.Since(started); took > 600*time.Millisecond {
		t.Errorf("1000 requests right after a failure took %s", took)
	}
}
