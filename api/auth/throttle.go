package auth

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// The token buckets of failed attempts: a burst, then one failure per interval.
const (
	failuresPerClient  = 10
	clientFailureEvery = 2 * time.Second
	failuresPerAddress = 50
	addressFailEvery   = 200 * time.Millisecond
	throttleCacheSize  = 10_000 // of each kind
)

// throttle counts failed attempts in token buckets, one per client and one per address. It is local
// to the process. A bucket that the cache evicts starts full again.
type throttle struct {
	clients, addresses *lru.Cache[string, *rate.Limiter]
	now                func() time.Time
}

func newThrottle(now func() time.Time) *throttle {
	return &throttle{clients: newBuckets(), addresses: newBuckets(), now: now}
}

func newBuckets() *lru.Cache[string, *rate.Limiter] {
	buckets, err := lru.New[string, *rate.Limiter](throttleCacheSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return buckets
}

// count records a failure and returns the delay before the next attempt, or 0 after few failures.
// client is the claimed client, which count truncates.
func (t *throttle) count(client, address string) time.Duration {
	if len(client) > 64 {
		client = client[:64]
	}
	byClient := t.take(t.clients, client, clientFailureEvery, failuresPerClient)
	byAddress := t.take(t.addresses, address, addressFailEvery, failuresPerAddress)
	return max(byClient, byAddress)
}

func (t *throttle) take(
	from *lru.Cache[string, *rate.Limiter], key string, every time.Duration, burst int,
) time.Duration {
	if key == "" {
		return 0
	}
	bucket, ok := from.Get(key)
	if !ok {
		fresh := rate.NewLimiter(rate.Every(every), burst)
		if existing, found, _ := from.PeekOrAdd(key, fresh); found {
			fresh = existing
		}
		bucket = fresh
	}
	if bucket.AllowN(t.now(), 1) {
		return 0
	}
	return every
}
