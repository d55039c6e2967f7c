package models

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Quotas bound the number of things that one organisation may store at a time. They protect the
// database and refuse new work only. The outcomes of accepted work, and their events, are always
// written. A quota of 0 is no bound.
//
// All but Endpoints are approximate. A process counts its own reservations exactly. It sees those
// of other processes after quotaFresh, or after quotaFreshLow while at most half of the quota is
// used.
type Quotas struct {
	OpenRows    int64 // unsettled rows of batches; settled rows count until their chunk's task ends
	Events      int64 // webhook events, and open payment intents, each of which will add an event
	Invitations int64 // invitations that no customer has accepted yet
	Endpoints   int64 // webhook endpoints, exactly
}

// QuotaNoun names what a quota counts, as messages to partners word it.
type QuotaNoun string

// The nouns of quotas.
const (
	QuotaOpenRows    QuotaNoun = "batch rows that are not settled yet"
	QuotaEvents      QuotaNoun = "webhook events and open payment intents"
	QuotaInvitations QuotaNoun = "invitations that are not accepted yet"
	QuotaEndpoints   QuotaNoun = "webhook endpoints"
)

// QuotaError names the quota that the request would exceed. Nothing was stored.
type QuotaError struct {
	Noun  QuotaNoun
	Limit int64
	// RetryAfter is the delay after which usage may have fallen. It is short where usage falls by
	// itself, and longer where it depends on the partner's acts or on retention.
	RetryAfter time.Duration
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("models: quota of %d %s exceeded", e.Limit, e.Noun)
}

const (
	// quotaFresh is the validity of a reading while more than half of the quota is used.
	quotaFresh = time.Second
	// quotaFreshLow is the validity of a reading while at most half of the quota is used.
	quotaFreshLow = 10 * time.Second
	// quotaReadWithin bounds a reading.
	quotaReadWithin = time.Second
	// quotaCacheSize is the number of organisations whose usage a process remembers.
	quotaCacheSize = 10_000
)

// quotaGauge decides from memory whether an organisation may store more under one quota. It reads
// the stored usage when a request needs a fresh reading. It is safe for concurrent use.
type quotaGauge struct {
	noun       QuotaNoun
	limit      int64 // 0: no bound
	retryAfter time.Duration
	// read counts what an organisation stores. It may stop counting above limit.
	read func(ctx context.Context, organisation OrganisationID) (int64, error)
	now  func() time.Time

	mu     sync.Mutex
	usages *lru.Cache[OrganisationID, *quotaUsage]
}

// quotaUsage is a gauge's state for one organisation. The gauge's mutex guards it. The end of a
// reservation lowers pending by the whole amount, and used and since by the part not stored.
type quotaUsage struct {
	used    int64         // stored at the last reading, plus since
	pending int64         // reservations that have not ended
	since   int64         // pending when the last reading began, plus what was reserved afterwards
	readAt  time.Time     // zero: never
	reading chan struct{} // closed at the end of the reading in flight; nil: none
}

func newQuotaGauge(
	noun QuotaNoun, limit int64, retryAfter time.Duration, now func() time.Time,
	read func(context.Context, OrganisationID) (int64, error),
) *quotaGauge {
	usages, err := lru.New[OrganisationID, *quotaUsage](quotaCacheSize)
	if err != nil {
		panic(err) // the size is positive
	}
	return &quotaGauge{noun: noun, limit: limit, retryAfter: retryAfter, read: read, now: now, usages: usages}
}

// quotaReservation is an amount of a quota reserved for a pending insertion. A nil reservation
// reserves nothing.
type quotaReservation struct {
	gauge  *quotaGauge
	usage  *quotaUsage
	amount int64
}

// reserve reserves n for an organisation; the caller must call done on the reservation. If the last
// reading is too old, one caller reads again. Meanwhile, other callers reserve by the old reading
// if it leaves capacity, and wait otherwise. If no reading has succeeded yet, only reservations
// count. Errors: *QuotaError; ctx's error if it ends first.
func (g *quotaGauge) reserve(ctx context.Context, organisation OrganisationID, n int64) (*quotaReservation, error) {
	if g.limit == 0 || organisation.IsZero() {
		return nil, nil
	}
	for {
		g.mu.Lock()
		usage := g.usage(organisation)
		isFresh, reading := g.isFresh(usage), usage.reading
		if isFresh || reading != nil && !usage.readAt.IsZero() {
			reserved, refused := g.take(usage, n)
			if refused == nil || isFresh {
				g.mu.Unlock()
				return reserved, refused
			}
		}
		if reading == nil {
			usage.reading, usage.since = make(chan struct{}), usage.pending
			g.mu.Unlock()
			g.refresh(ctx, organisation, usage)
		} else {
			g.mu.Unlock()
			select {
			case <-reading:
			case <-ctx.Done():
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// usage returns the state of an organisation. The caller holds the mutex.
func (g *quotaGauge) usage(organisation OrganisationID) *quotaUsage {
	usage, ok := g.usages.Get(organisation)
	if !ok {
		usage = &quotaUsage{}
		g.usages.Add(organisation, usage)
	}
	return usage
}

// isFresh reports whether the last reading is still valid. The caller holds the mutex.
func (g *quotaGauge) isFresh(usage *quotaUsage) bool {
	if usage.readAt.IsZero() {
		return false
	}
	good := quotaFresh
	if usage.used <= g.limit/2 {
		good = quotaFreshLow
	}
	return g.now().Sub(usage.readAt) < good
}

// take reserves an amount if the limit allows it. The caller holds the mutex.
func (g *quotaGauge) take(usage *quotaUsage, n int64) (*quotaReservation, error) {
	if usage.used+n > g.limit {
		return nil, &QuotaError{Noun: g.noun, Limit: g.limit, RetryAfter: g.retryAfter}
	}
	usage.used, usage.pending, usage.since = usage.used+n, usage.pending+n, usage.since+n
	return &quotaReservation{gauge: g, usage: usage, amount: n}, nil
}

// refresh reads the usage again and ends the reading in flight. A reading cannot tell which pending
// reservations it includes, so they may count twice until the next reading. If the reading fails,
// the old usage stays.
func (g *quotaGauge) refresh(ctx context.Context, organisation OrganisationID, usage *quotaUsage) {
	reading, cancel := context.WithTimeout(ctx, quotaReadWithin)
	defer cancel()
	used, err := g.read(reading, organisation)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		usage.used, usage.readAt = used+usage.since, g.now()
	case ctx.Err() == nil: // else the next caller reads
		usage.readAt = g.now()
	}
	close(usage.reading)
	usage.reading = nil
}

// done ends a reservation: it keeps the amount that was stored and releases the rest.
func (r *quotaReservation) done(amount int64) {
	if r == nil {
		return
	}
	r.gauge.mu.Lock()
	defer r.gauge.mu.Unlock()
	r.usage.pending -= r.amount
	r.usage.used += amount - r.amount
	r.usage.since += amount - r.amount
}

// stored returns the argument of done: n if n was stored, else 0.
func stored(n int64, isStored bool) int64 {
	if isStored {
		return n
	}
	return 0
}
