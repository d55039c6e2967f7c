package api

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// A body of more than arrivedBody bytes is read only once its memory is free. For this, the memory
// limit of the process is divided:
//
//   - 1/memoryDivisor bounds the connections. Each is counted with connectionCost.
//   - 1/memoryDivisor bounds the request bodies that are being read, parsed or handled. Each byte
//     of a body is counted with bodyCost.
//   - The rest is for answers, the runtime, and garbage: the heap grows to twice the live data.
//
// The memory limit is Config.MemoryLimit.

// DefaultMemoryLimit is the assumed memory limit of a process without GOMEMLIMIT, in bytes.
const DefaultMemoryLimit = 1 << 30

const (
	// memoryDivisor gives connections and bodies 1/memoryDivisor each of the memory limit.
	memoryDivisor = 6
	// connectionCost is the memory in bytes of a connection on which a request arrives: its
	// buffers, its goroutine's stack, and the body of at most arrivedBody bytes.
	connectionCost = 32 << 10
	// bodyCost is the number of bytes of memory that each byte of a body costs at most. It covers
	// the body, its parsed text, its values, its canonical form, and the rows that are sent to
	// Postgres.
	bodyCost = 6
)

// smallBody is the size of the largest small body, in bytes: every body of an ordinary route is
// small. Any larger body is a large body.
const smallBody = maxOrdinaryBytes

// memoryLimit returns GOMEMLIMIT, or DefaultMemoryLimit without it.
func memoryLimit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return DefaultMemoryLimit
}

// bodyMemory bounds the memory of the bodies of requests in flight. Bodies of unauthenticated
// callers (public), small bodies and large bodies each have a part of it, so that no kind delays
// another.
type bodyMemory struct {
	public, small, large *byteSemaphore
	// handled bounds the large bodies that are parsed and handled at once. They take much CPU time
	// here and in Postgres, so only a few may compete with other requests.
	handled *fairSemaphore[caller]
	// buffers holds the buffers of large bodies.
	buffers bodyBuffers
}

const (
	// maxLargeBodies is the maximum number of large bodies that are handled at once.
	maxLargeBodies = 2
	// maxLargeBodiesWaiting is the maximum number of a caller's large bodies that wait to be
	// handled.
	maxLargeBodiesWaiting = 16
)

// newBodyMemory divides the memory for bodies under a memory limit in bytes.
func newBodyMemory(limit int64, registry *prometheus.Registry) *bodyMemory {
	m := newBodyMetrics(registry)
	bytes := limit / memoryDivisor / bodyCost
	return &bodyMemory{
		public: newByteSemaphore(bytes/8, maxBatchBytes, m.of("public")),
		small:  newByteSemaphore(bytes*3/8, 4*smallBody, m.of("small")),
		large:  newByteSemaphore(bytes/2, maxBatchBytes, m.of("large")),

		handled: newFairSemaphore[caller](
			fairLimits{permits: maxLargeBodies, waitersPerCaller: maxLargeBodiesWaiting, wait: bodyWaitLimit},
			m.refused.WithLabelValues("large", "handling")),
	}
}

// handle waits until the complete body of a request may be handled, at most for bodyWaitLimit. size
// is in bytes. A large body gets a permit, which releaseBody gives back. handle returns an error
// that wraps errNoBodyMemory if it gets none.
func (m *bodyMemory) handle(ctx context.Context, r *Request, size int) error {
	// An unauthenticated body needs no permit: it is a form of the console. Its API calls need one.
	if size <= smallBody || r.Principal.ClientID.IsZero() {
		return nil
	}
	if err := m.handled.acquire(ctx, callerOf(&r.Principal), 1); err != nil {
		return fmt.Errorf("%w: %w", errNoBodyMemory, err)
	}
	r.handlesLarge = true
	return nil
}

// releaseBody gives back the memory of the request's body, and the permit to handle a large body.
func (r *Request) releaseBody() {
	r.lease.release()
	if r.handlesLarge {
		r.handlesLarge = false
		r.server.bodies.handled.release(callerOf(&r.Principal), 1)
	}
}

// semaphoreOf returns the semaphore for a body of size bytes, and the caller that the body counts
// for. The caller is the organisation, the client of no organisation or, before authentication, the
// address.
func (m *bodyMemory) semaphoreOf(r *Request, size int) (*byteSemaphore, string) {
	by := callerOf(&r.Principal).id.String()
	switch {
	case r.Principal.ClientID.IsZero():
		return m.public, r.address.String()
	case size <= smallBody:
		return m.small, by
	default:
		return m.large, by
	}
}
