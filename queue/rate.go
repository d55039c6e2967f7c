package queue

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"partnerbilling/models"
)

// askWithin bounds one question to Redis; a slow Redis must not hold up what the limit is for.
const askWithin = 250 * time.Millisecond

// FleetLimiter spaces events of all processes on one Redis. While Redis does not answer, each process keeps to the rate by
// itself: the fleet may then exceed it, which is better than to stand still.
type FleetLimiter struct {
	shared *redis_rate.Limiter
	own    *rate.Limiter
	name   string
	limit  redis_rate.Limit
}

// NewFleetLimiter allows so many events of a name per second, with bursts of one second's worth. perSecond is above 0.
func NewFleetLimiter(client *redis.Client, name string, perSecond float64) *FleetLimiter {
	burst := max(1, int(perSecond))
	return &FleetLimiter{
		shared: redis_rate.NewLimiter(client), own: rate.NewLimiter(rate.Limit(perSecond), burst), name: name,
		limit: redis_rate.Limit{Rate: 1, Burst: burst, Period: time.Duration(float64(time.Second) / perSecond)},
	}
}

// Wait waits for a turn; its error is that of the context. Turns are not divided between organisations.
func (l *FleetLimiter) Wait(ctx context.Context, _ models.OrganisationID) error {
	for {
		asked, cancel := context.WithTimeout(ctx, askWithin)
		turn, err := l.shared.Allow(asked, l.name, l.limit)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return l.own.Wait(ctx)
		case turn.Allowed > 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(turn.RetryAfter):
		}
	}
}
