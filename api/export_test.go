package api

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// answered are the codes of all errors that servers of this test process have answered with.
var answered sync.Map

func init() {
	onFailure = func(e *Error) {
		for _, f := range e.Faults {
			answered.Store(f.Code, true)
		}
	}
}

// MaxExports is how many tables of movements are streamed at once.
const MaxExports = maxExports

// Answered reports whether any test has provoked the code.
func Answered(code Code) bool {
	_, ok := answered.Load(code)
	return ok
}

// NewWithRoutes makes a server with another route table, for tests of the ground that the real one stands on.
func NewWithRoutes(cfg Config, table []Route) *Server {
	return newServer(cfg.withDefaults(), table)
}

// NewLimiterWithLongTimeout makes a limiter that waits for Redis however busy the machine is, for tests of what it counts.
func NewLimiterWithLongTimeout(shared *redis.Client, rates map[RateClass]Rate) *RedisLimiter {
	return newRedisLimiter(shared, rates, time.Minute)
}
