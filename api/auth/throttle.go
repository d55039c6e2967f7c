package auth

import (
	"time"

	"partnerbilling/api/ratelimit"
)

// Bound limits attempts by a token bucket: Burst at once, then one per Every. The zero Bound is
// unlimited.
type Bound struct {
	Every time.Duration
	Burst int
}

// The limits of failed attempts per client and per address.
var (
	clientFailures  = Bound{2 * time.Second, 10}
	addressFailures = Bound{200 * time.Millisecond, 50}
)

// throttle limits attempts per client and per address. It is local to the process.
type throttle struct {
	byClient, byAddress Bound
	clients, addresses  *ratelimit.Buckets
	now                 func() time.Time
}

func newThrottle(byClient, byAddress Bound, now func() time.Time) *throttle {
	return &throttle{
		byClient: byClient, byAddress: byAddress, now: now,
		clients:   ratelimit.NewBuckets(byClient.Every, byClient.Burst),
		addresses: ratelimit.NewBuckets(byAddress.Every, byAddress.Burst),
	}
}

// count takes a token from the buckets of the client and the address. It skips an empty client or
// address, and an unlimited bound. It returns 0 if both buckets had a token, otherwise a delay
// after which they have one. The client may be any text of a request, so count uses only its first
// 64 bytes.
func (t *throttle) count(client, address string) time.Duration {
	if len(client) > 64 {
		client = client[:64]
	}
	return max(t.take(t.clients, client, t.byClient), t.take(t.addresses, address, t.byAddress))
}

func (t *throttle) take(from *ratelimit.Buckets, key string, bound Bound) time.Duration {
	if key == "" || bound == (Bound{}) || from.Of(key).AllowN(t.now(), 1) {
		return 0
	}
	return bound.Every
}
