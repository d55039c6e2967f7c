package ratelimit

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// maxBuckets is the maximum number of keys that Buckets remember.
const maxBuckets = 10_000

// Buckets are token buckets by key, in the memory of this process. They do not need Redis. Above
// maxBuckets keys, they forget the least recently used one, whose bucket then starts full again.
// Buckets are safe for concurrent use.
type Buckets struct {
	every time.Duration // refills one token
	burst int           // tokens of a full bucket
	known *lru.Cache[string, *rate.Limiter]
}

// NewBuckets returns buckets of burst tokens that start full and refill by one token in every
// interval.
func NewBuckets(every time.Duration, burst int) *Buckets {
	known, err := lru.New[string, *rate.Limiter](maxBuckets)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Buckets{every, burst, known}
}

// Of returns the bucket of a key, a full one if the key is new.
func (b *Buckets) Of(key string) *rate.Limiter {
	if bucket, ok := b.known.Get(key); ok {
		return bucket
	}
	fresh := rate.NewLimiter(rate.Every(b.every), b.burst)
	if existing, found, _ := b.known.PeekOrAdd(key, fresh); found {
		return existing
	}
	return fresh
}
