package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// failures is a hook that fails the first commands.
type failures struct{ left atomic.Int64 }

func (f *failures) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failures) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.left.Add(-1) >= 0 {
			return errors.New("no answer")
		}
		return next(ctx, cmd)
	}
}

func (f *failures) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// While Redis does not answer, a process has its part of the rate, and no burst.
func TestFleetLimiterDividesTheRateWithoutRedis(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Redis(t))
	var failing failures
	failing.left.Store(1 << 60)
	client.AddHook(&failing)
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
	var failing failures
	failing.left.Store(1)
	client.AddHook(&failing)
	limiter := queue.NewFleetLimiter(client, "rail", 1, func() int { return 1000 })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n := limiter.Take(ctx, models.OrganisationID{}, 1); n != 1 {
		t.Errorf("took %d tokens from a Redis that answers again", n)
	}
}
