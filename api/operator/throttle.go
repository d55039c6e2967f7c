package operator

import (
	"time"

	"partnerbilling/api/ratelimit"
)

// The token buckets of attempts: a burst, then one attempt per interval.
const (
	attemptsPerAddress = 10
	addressEvery       = 6 * time.Second
	attemptsPerName    = 20
	nameEvery          = 5 * time.Second
)

// throttle limits the login attempts from an address, and those against an operator's name. It is
// local to the process. If an address has made no attempt in the last minute, its next attempt
// always passes. Guesses from other addresses therefore lock no operator out.
type throttle struct {
	addresses, names *ratelimit.Buckets
}

func newThrottle() *throttle {
	return &throttle{
		ratelimit.NewBuckets(addressEvery, attemptsPerAddress), ratelimit.NewBuckets(nameEvery, attemptsPerName),
	}
}

// take admits an attempt and returns 0, or returns the time after which the next attempt may be
// admitted.
func (t *throttle) take(now time.Time, address, name string) time.Duration {
	byAddress := t.addresses.Of(address)
	isFirst := byAddress.TokensAt(now) >= attemptsPerAddress
	if !byAddress.AllowN(now, 1) {
		return addressEvery
	}
	if !t.names.Of(name).AllowN(now, 1) && !isFirst {
		return nameEvery
	}
	return 0
}
