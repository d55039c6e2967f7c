package queue_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// failFirst makes the first n commands of a client fail.
func failFirst(client redis.UniversalClient, n int64) {
	var left atomic.Int64
	left.Store(n)
	client.AddHook(queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if left.Add(-1) >= 0 {
			return errors.New("no answer")
		}
		return next(ctx, cmd)
	}))
}

// While Redis does not answer, a process has its part of the rate, and no burst.
func TestFleetLimiterDividesTheRateWithoutRedis(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Redis(t))
	failFirst(client, math.MaxInt64)
	const perSecond, processes, tokens = 400, 4, 100
	limiter := queue.NewFleetLimiter(client, "rail", perSecond, func() int { return processes })
	began := time.Now()
	for left := tokens; left > 0; {
		left -= limiter.Take(t.Context(), models.OrganisationID{}, left)
	}
	minimum := time.Second * tokens * processes / perSecond * 9 / 10
	if took := time.Since(began); took < minimum {
		t.Errorf("%d tokens took %s, want at least %s", tokens, took, minimum)
	}
}

// A process whose part is less than a token asks Redis again, and does not wait for that token.
func TestFleetLimiterReturnsToRedis(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Redis(t))
	failFirst(client, 1)
	limiter := queue.NewFleetLimiter(client, "rail", 1, func() int { return 1000 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n := limiter.Take(ctx, models.OrganisationID{}, 1); n != 1 {
		t.Errorf("took %d tokens from a Redis that answers again", n)
	}
}
