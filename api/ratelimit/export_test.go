package ratelimit

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// NewWithLongTimeout returns a limiter that waits for Redis even on a busy machine.
func NewWithLongTimeout(client redis.UniversalClient, rates map[Class]Rate) *Limiter {
	return newLimiter(client, rates, time.Minute)
}

// Interval returns the time in which one token refills.
func (r Rate) Interval() time.Duration { return time.Duration(r.interval()) * time.Microsecond }
