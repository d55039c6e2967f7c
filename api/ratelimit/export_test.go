package ratelimit

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// NewWithLongTimeout returns a limiter that waits for Redis even on a busy machine.
func NewWithLongTimeout(client redis.UniversalClient, rates map[Class]Rate) *Limiter {
	return newLimiter(client, rates, time.Minute)
}
