// Package ratelimit limits the requests of each API client, across all processes on one Redis. Its
// Buckets limit within one process, without Redis.
package ratelimit

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// Class names a rate limit.
type Class string

// The classes. Every request counts against Default, and against its own class as well.
const (
	Default Class = "default"
	Tokens  Class = "tokens"  // access tokens issued
	Batches Class = "batches" // submissions, validations and retries of batches
)

// Decision says whether a request is within its limits.
type Decision struct {
	Allowed    bool
	RetryAfter time.Duration // of a refusal; 0 if the request is allowed
	Limits     []Limit       // every limit that the request counts against
}

// Limit is the state of one rate limit.
type Limit struct {
	Name      string        // the class; a structured-field string in headers
	Quota     int64         // requests per window
	Window    time.Duration // at least one second
	Remaining int64         // requests that the bucket still has tokens for
	Reset     time.Duration // until the whole quota is available again
}

// Rate is a token bucket of Burst tokens that refills at PerSecond. The zero Rate is unlimited.
type Rate struct {
	PerSecond float64
	Burst     int
}

// maxPerSecond bounds a rate. Buckets count whole microseconds, so the interval of a token is
// rounded up. This reduces a rate of at most maxPerSecond by less than a tenth.
const maxPerSecond = 100_000

// ParseRate parses a configured rate: requests per second from 0.001 to 100000, or "off". The burst
// is the rate times burstSeconds, and at least 1.
func ParseRate(text string, burstSeconds float64) (Rate, error) {
	if text == "off" {
		return Rate{}, nil
	}
	perSecond, err := strconv.ParseFloat(text, 64)
	if err != nil || !(perSecond >= 0.001 && perSecond <= maxPerSecond) {
		return Rate{}, errors.New(`must be a number of requests per second from 0.001 to 100000, or "off"`)
	}
	return newRate(perSecond, burstSeconds), nil
}

// newRate returns a rate with the burst that it refills in burstSeconds, at least 1.
func newRate(perSecond, burstSeconds float64) Rate {
	return Rate{perSecond, int(max(1, math.Ceil(perSecond*burstSeconds)))}
}

// Divide returns the rate divided by n, with a burst of burstSeconds as ParseRate takes it.
func (r Rate) Divide(n, burstSeconds float64) Rate {
	if r.off() {
		return r
	}
	return newRate(r.PerSecond/n, burstSeconds)
}

// off reports whether the rate is unlimited.
func (r Rate) off() bool { return r.PerSecond <= 0 }

// interval returns the microseconds in which one token refills, rounded up.
func (r Rate) interval() int64 { return int64(math.Ceil(1e6 / r.PerSecond)) }

// window returns the time in which the whole bucket refills, at least one second.
func (r Rate) window() time.Duration {
	return max(time.Second, time.Duration(r.interval()*int64(r.Burst))*time.Microsecond)
}
