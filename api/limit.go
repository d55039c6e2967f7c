package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
)

// Rate limits requests by a token bucket of Burst tokens that refills at PerSecond. The zero Rate
// is unlimited.
type Rate struct {
	PerSecond float64
	Burst     int
}

// ParseRate parses a configured rate: requests per second from 0.001 to 1000000, or "off". The
// burst is the rate times burstSeconds, and at least 1.
func ParseRate(text string, burstSeconds float64) (Rate, error) {
	if text == "off" {
		return Rate{}, nil
	}
	perSecond, err := strconv.ParseFloat(text, 64)
	if err != nil || !(perSecond >= 0.001 && perSecond <= 1e6) {
		return Rate{}, errors.New(`must be a number of requests per second from 0.001 to 1000000, or "off"`)
	}
	return Rate{perSecond, int(max(1, math.Ceil(perSecond*burstSeconds)))}, nil
}

// Divide returns the n-th part of a rate, with a burst of 10 seconds.
func (r Rate) Divide(n float64) Rate {
	if r.off() {
		return r
	}
	perSecond := r.PerSecond / n
	return Rate{perSecond, int(max(1, math.Ceil(10*perSecond)))}
}

// off reports whether the rate is unlimited.
func (r Rate) off() bool { return r.PerSecond <= 0 }

// interval returns the microseconds in which one token refills.
func (r Rate) interval() int64 { return int64(math.Ceil(1e6 / r.PerSecond)) }

// window returns the time in which the whole bucket refills, at least one second.
func (r Rate) window() time.Duration {
	return max(time.Second, time.Duration(r.interval()*int64(r.Burst))*time.Microsecond)
}

const (
	limiterTimeout  = 40 * time.Millisecond // for all limits of a request, which Redis must not delay by 50 ms
	limiterCooldown = time.Second           // after a failure, during which Redis is not queried
)

// RedisLimiter limits the requests of each client across all processes, with token buckets in
// Redis. It fails open: if Redis fails or is slow, requests pass. It is safe for concurrent use.
type RedisLimiter struct {
	redis         *redis.Client
	rates         map[RateClass]Rate
	timeout       time.Duration // for all limits of a request
	now           func() time.Time
	cooldownUntil atomic.Int64 // Unix time in ns
}

// NewRedisLimiter returns a limiter for the Redis of the shared client. The limiter has its own
// connection pool with short time-outs; the caller must close it.
func NewRedisLimiter(shared *redis.Client, rates map[RateClass]Rate) *RedisLimiter {
	return newRedisLimiter(shared, rates, limiterTimeout)
}

func newRedisLimiter(shared *redis.Client, rates map[RateClass]Rate, timeout time.Duration) *RedisLimiter {
	options := *shared.Options()
	options.ContextTimeoutEnabled = true
	options.MaxRetries = -1
	options.DialTimeout = timeout
	options.ReadTimeout = timeout
	options.WriteTimeout = timeout
	options.PoolTimeout = timeout
	options.DialerRetries = 1
	now := time.Now //nolint:forbidigo // measures only the cooldown; the buckets use the Redis server's clock
	return &RedisLimiter{redis: redis.NewClient(&options), rates: rates, timeout: timeout, now: now}
}

// Close closes the connection pool.
func (l *RedisLimiter) Close() error { return l.redis.Close() }

// takeScript takes a token from every bucket, or from none if one is empty. A bucket is stored as
// the time at which it is full again, in microseconds of the server's clock (GCRA). The script
// returns whether the request is allowed. For each bucket it returns the tokens left, the
// microseconds until it is full and until it has one more token.
var takeScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full, allowed = {}, 1
for i, key in ipairs(KEYS) do
  local interval, burst = tonumber(ARGV[2*i-1]), tonumber(ARGV[2*i])
  full[i] = math.max(tonumber(redis.call('GET', key) or '0'), now)
  if full[i] + interval > now + interval * burst then allowed = 0 end
end
local answer = {allowed}
for i, key in ipairs(KEYS) do
  local interval, burst = tonumber(ARGV[2*i-1]), tonumber(ARGV[2*i])
  if allowed == 1 then
    full[i] = full[i] + interval
    redis.call('SET', key, string.format('%.0f', full[i]), 'PX', math.ceil((full[i] - now) / 1000))
  end
  local used = full[i] - now
  answer[#answer+1] = math.max(0, math.floor((interval * burst - used) / interval))
  answer[#answer+1] = used
  answer[#answer+1] = math.max(0, used + interval - interval * burst)
end
return answer
`)

// Take counts a request against the default limit and the limit of its class.
func (l *RedisLimiter) Take(ctx context.Context, client models.ClientID, class RateClass) Decision {
	classes := l.limited(class)
	if len(classes) == 0 {
		return Decision{Allowed: true}
	}
	decision, err := l.query(ctx, client, classes)
	if err != nil {
		return l.failOpen(classes)
	}
	return decision
}

func (l *RedisLimiter) limited(class RateClass) []RateClass {
	var classes []RateClass
	for _, c := range []RateClass{RateDefault, class} {
		if !l.rates[c].off() && (len(classes) == 0 || c != classes[0]) {
			classes = append(classes, c)
		}
	}
	return classes
}

var errLimiterCooldown = errors.New("api: Redis failed a moment ago")

func (l *RedisLimiter) query(ctx context.Context, client models.ClientID, classes []RateClass) (Decision, error) {
	if l.now().UnixNano() < l.cooldownUntil.Load() {
		return Decision{}, errLimiterCooldown
	}
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var keys []string
	var args []any
	for _, class := range classes {
		rate := l.rates[class]
		keys = append(keys, fmt.Sprintf("svc:rate:{%s}:%s", client, class)) // one slot of a Redis cluster
		args = append(args, rate.interval(), rate.Burst)
	}
	answer, err := takeScript.Run(limited, l.redis, keys, args...).Int64Slice()
	if err == nil && len(answer) != 1+3*len(classes) {
		err = errors.New("api: malformed answer of the rate script")
	}
	if err != nil {
		if ctx.Err() == nil { // Redis failed, not the caller
			l.cooldownUntil.Store(l.now().Add(limiterCooldown).UnixNano())
		}
		return Decision{}, err
	}
	return l.decide(classes, answer), nil
}

func (l *RedisLimiter) decide(classes []RateClass, answer []int64) Decision {
	d := Decision{Allowed: answer[0] == 1}
	for i, class := range classes {
		bucket := answer[1+3*i : 4+3*i]
		limit := l.limit(class)
		limit.Remaining = bucket[0]
		limit.Reset = time.Duration(bucket[1]) * time.Microsecond
		d.Limits = append(d.Limits, limit)
		if !d.Allowed {
			d.RetryAfter = max(d.RetryAfter, time.Duration(bucket[2])*time.Microsecond)
		}
	}
	return d
}

func (l *RedisLimiter) limit(class RateClass) Limit {
	rate := l.rates[class]
	return Limit{Name: string(class), Quota: int64(rate.Burst), Window: rate.window()}
}

// failOpen allows a request that could not be counted.
func (l *RedisLimiter) failOpen(classes []RateClass) Decision {
	d := Decision{Allowed: true}
	for _, class := range classes {
		limit := l.limit(class)
		limit.Unknown = true
		d.Limits = append(d.Limits, limit)
	}
	return d
}
