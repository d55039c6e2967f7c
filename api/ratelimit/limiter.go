package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/models/coalesce"
)

const (
	// Timeout bounds the check of all limits of a request, so that Redis delays a request by less
	// than 50 ms.
	Timeout = 40 * time.Millisecond
	// cooldown is the time after a failure during which Redis is not queried.
	cooldown = time.Second
)

// Limiter limits the requests of each client across all processes, with token buckets in Redis. It
// fails open: if Redis fails or is slow, requests pass uncounted. It is safe for concurrent use.
type Limiter struct {
	redis         redis.UniversalClient
	rates         map[Class]Rate
	timeout       time.Duration // for all limits of a request
	now           func() time.Time
	cooldownUntil atomic.Int64 // Unix time in ns
	takes         coalesce.Coalescer[*take, taken]
}

// take is one call of takeScript, with its KEYS and ARGV.
type take struct {
	keys []string
	args []any
}

// New returns a limiter with the rates of the classes; a class without a rate is unlimited. The
// limiter owns the client. The client's commands must fail after Timeout, without a retry.
func New(client redis.UniversalClient, rates map[Class]Rate) *Limiter {
	return newLimiter(client, rates, Timeout)
}

func newLimiter(client redis.UniversalClient, rates map[Class]Rate, timeout time.Duration) *Limiter {
	now := time.Now //nolint:forbidigo // measures only the cooldown; the buckets use the Redis server's clock
	l := &Limiter{redis: client, rates: rates, timeout: timeout, now: now}
	l.takes.Call = l.pipeline
	return l
}

// Close closes the client.
func (l *Limiter) Close() error { return l.redis.Close() }

// takeScript takes a token from every bucket, or from none if one is empty. A bucket is stored as
// the time at which it is full again, in microseconds of the server's clock (GCRA). KEYS are the
// buckets. ARGV has the microseconds per token and the burst of each.
//
// The script returns 1 if the request is allowed, otherwise 0. For each bucket it then returns the
// tokens left, the microseconds until it is full, and the microseconds until it has a token.
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

// Take counts a request against the limit Default and the limit of its class. If Redis fails or is
// slow, it allows the request without counting it: each bucket then reads as full.
func (l *Limiter) Take(ctx context.Context, client models.ClientID, class Class) Decision {
	classes := l.limited(class)
	if len(classes) == 0 {
		return Decision{Allowed: true}
	}
	decision, err := l.takeAll(ctx, client, classes)
	if err != nil {
		return l.failOpen(classes)
	}
	return decision
}

// limited returns those of the classes Default and class that have a limit.
func (l *Limiter) limited(class Class) []Class {
	var classes []Class
	for _, c := range []Class{Default, class} {
		if !l.rates[c].off() && (len(classes) == 0 || c != classes[0]) {
			classes = append(classes, c)
		}
	}
	return classes
}

var errCooldown = errors.New("ratelimit: Redis failed a moment ago")

// takeAll takes a token from the bucket of each class, or from none if one is empty.
func (l *Limiter) takeAll(ctx context.Context, client models.ClientID, classes []Class) (Decision, error) {
	if l.now().UnixNano() < l.cooldownUntil.Load() {
		return Decision{}, errCooldown
	}
	taking, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var t take
	for _, class := range classes {
		rate := l.rates[class]
		t.keys = append(t.keys, fmt.Sprintf("svc:rate:{%s}:%s", client, class)) // one slot of a Redis cluster
		t.args = append(t.args, rate.interval(), rate.Burst)
	}
	answer, err := l.takes.Do(taking, &t)
	if err == nil {
		err = answer.err
	}
	if err == nil && len(answer.values) != 1+3*len(classes) {
		err = errors.New("ratelimit: malformed answer of the rate script")
	}
	if err != nil {
		if ctx.Err() == nil { // Redis failed, not the caller
			l.cooldownUntil.Store(l.now().Add(cooldown).UnixNano())
		}
		return Decision{}, err
	}
	return l.decide(classes, answer.values), nil
}

// pipeline sends the scripts of concurrent requests together, to save round trips. The servers of a
// Redis cluster fail independently, so each request has its own error.
func (l *Limiter) pipeline(ctx context.Context, takes []*take) ([]taken, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	answers := l.send(ctx, takes, takeScript.EvalSha)
	var unknown []*take // those whose server does not know the script
	var at []int        // their indexes in takes
	for i, a := range answers {
		if redis.HasErrorPrefix(a.err, "NOSCRIPT") {
			unknown, at = append(unknown, takes[i]), append(at, i)
		}
	}
	if len(unknown) > 0 {
		for i, a := range l.send(ctx, unknown, takeScript.Eval) {
			answers[at[i]] = a
		}
	}
	return answers, nil
}

// taken is the answer to one take.
type taken struct {
	values []int64
	err    error
}

// evaluate is a way to run takeScript: by its hash or by its text.
type evaluate func(ctx context.Context, s redis.Scripter, keys []string, args ...any) *redis.Cmd

// send runs takeScript for each take in one round trip.
func (l *Limiter) send(ctx context.Context, takes []*take, run evaluate) []taken {
	calls, answers := make([]*redis.Cmd, len(takes)), make([]taken, len(takes))
	_, _ = l.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each call has its error
		for i, t := range takes {
			calls[i] = run(ctx, pipe, t.keys, t.args...)
		}
		return nil
	})
	for i, call := range calls {
		answers[i].values, answers[i].err = call.Int64Slice()
	}
	return answers
}

// decide converts an answer of takeScript about the buckets of the classes.
func (l *Limiter) decide(classes []Class, answer []int64) Decision {
	d := Decision{Allowed: answer[0] == 1}
	for i, class := range classes {
		bucket := answer[1+3*i : 4+3*i]
		limit := l.full(class)
		limit.Remaining = bucket[0]
		limit.Reset = time.Duration(bucket[1]) * time.Microsecond
		d.Limits = append(d.Limits, limit)
		if !d.Allowed {
			d.RetryAfter = max(d.RetryAfter, time.Duration(bucket[2])*time.Microsecond)
		}
	}
	return d
}

// full returns a limit with a full bucket.
func (l *Limiter) full(class Class) Limit {
	rate := l.rates[class]
	burst := int64(rate.Burst)
	return Limit{Name: string(class), Quota: burst, Window: rate.window(), Remaining: burst}
}

// failOpen allows a request that could not be counted. While Redis is unavailable no request uses a
// token, so the whole burst remains.
func (l *Limiter) failOpen(classes []Class) Decision {
	d := Decision{Allowed: true}
	for _, class := range classes {
		d.Limits = append(d.Limits, l.full(class))
	}
	return d
}
