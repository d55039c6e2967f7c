package queue

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"partnerbilling/models"
)

const (
	// limiterTimeout bounds a request to Redis. A slow Redis must not hold up the limited work.
	limiterTimeout = 250 * time.Millisecond
	// maxTokensPerRequest is the maximum number of tokens that one request asks for.
	maxTokensPerRequest = 32
	// requestInterval is the minimum pause after a request that got fewer tokens than it asked for.
	// At a high rate several tokens have accrued by then.
	requestInterval = 10 * time.Millisecond
	// localPeriod is how long a process uses its own limiter after a failed request.
	localPeriod = time.Second
)

// FleetLimiter is a token bucket that all processes on one Redis share. While Redis does not
// answer, each process limits itself to the rate divided by the number of processes, or to the
// whole rate if it does not know the number. Within a process, waiting organisations get tokens in
// rotation, however many tokens each wants. A FleetLimiter is safe for concurrent use.
type FleetLimiter struct {
	shared     *redis_rate.Limiter
	name       string
	perSecond  float64
	processes  func() int // the number of processes that share the rate
	limit      redis_rate.Limit
	requesting chan struct{} // full while one waiter requests tokens for all waiters

	// Only the requesting waiter uses these three.
	nextRequest time.Time     // earliest time of the next request
	local       *rate.Limiter // of this process; nil if the last request succeeded
	localUntil  time.Time     // the process uses local until then

	mu       sync.Mutex                               // guards the fields below, and the tokens of waiters
	waiting  map[models.OrganisationID][]*tokenWaiter // in order of arrival
	rotation []models.OrganisationID                  // organisations with waiters; the first is next
}

// tokenWaiter is a call of Take that waits for tokens.
type tokenWaiter struct {
	organisation models.OrganisationID
	wanted       int           // the number of tokens that the caller wants
	tokens       int           // the number of tokens that it has received
	done         chan struct{} // closed once tokens is above 0 and final
}

// NewFleetLimiter returns the limiter of the given name. Limiters of the same name on one Redis
// share their tokens. The limiter allows perSecond tokens a second, with bursts of one second's
// tokens, at least one. perSecond must be above 0. While Redis does not answer, the process takes
// an equal part of the rate among as many processes as processes returns; nil or 0: it is alone.
func NewFleetLimiter(
	client redis.UniversalClient, name string, perSecond float64, processes func() int,
) *FleetLimiter {
	burst := max(1, int(perSecond))
	if processes == nil {
		processes = func() int { return 1 }
	}
	return &FleetLimiter{
		shared: redis_rate.NewLimiter(client), name: name, perSecond: perSecond, processes: processes,
		limit:      redis_rate.Limit{Rate: 1, Burst: burst, Period: time.Duration(float64(time.Second) / perSecond)},
		requesting: make(chan struct{}, 1), waiting: map[models.OrganisationID][]*tokenWaiter{},
	}
}

// Take waits until there are tokens for the organisation, and takes up to n of them. It returns the
// number taken: 0 if the context ends first or n is below 1.
func (l *FleetLimiter) Take(ctx context.Context, organisation models.OrganisationID, n int) int {
	if ctx.Err() != nil || n < 1 {
		return 0
	}
	w := l.join(organisation, n)
	for {
		select {
		case <-w.done:
			return w.tokens
		case <-ctx.Done():
			l.leave(w)
			return 0
		case l.requesting <- struct{}{}:
			l.request(ctx, w)
			<-l.requesting
		}
	}
}

// join adds a waiter for n tokens.
func (l *FleetLimiter) join(organisation models.OrganisationID, n int) *tokenWaiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &tokenWaiter{organisation: organisation, wanted: n, done: make(chan struct{})}
	if len(l.waiting[organisation]) == 0 {
		l.rotation = append(l.rotation, organisation)
	}
	l.waiting[organisation] = append(l.waiting[organisation], w)
	return w
}

// leave removes a waiter that gives up, and passes its tokens on to other waiters. If no other
// waiter wants them, they are lost: kept tokens could exceed the burst.
func (l *FleetLimiter) leave(w *tokenWaiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(w)
	l.distribute(w.tokens)
}

// request requests tokens once, on behalf of all waiters, and distributes them. It first waits
// until nextRequest. It requests none if w gives up or gets tokens before.
func (l *FleetLimiter) request(ctx context.Context, w *tokenWaiter) {
	if !l.pause(ctx, w, time.Until(l.nextRequest)) {
		return
	}
	wanted := l.wanted()
	if wanted == 0 { // w has got its tokens meanwhile
		return
	}
	if time.Until(l.localUntil) > 0 {
		l.takeLocal(ctx, w)
		return
	}
	began := time.Now()
	tokens, wait, err := l.fetch(ctx, wanted)
	if err != nil {
		l.startLocal(began)
		l.takeLocal(ctx, w)
		return
	}
	l.local = nil
	if tokens < wanted {
		now := time.Now() //nolint:forbidigo // only for a pause; tokens accrue by the clock of Redis
		l.nextRequest = now.Add(max(wait, requestInterval))
	}
	l.give(tokens) // even if w has given up: the tokens belong to the other waiters
}

// startLocal switches to the process's own limiter for localPeriod. began is the start of the
// request that failed. The limiter is empty at first: the shared tokens of that time may have been
// taken. It keeps what accrues while further requests fail.
func (l *FleetLimiter) startLocal(began time.Time) {
	perSecond := l.perSecond / float64(max(1, l.processes()))
	burst := max(1, int(perSecond))
	if l.local == nil {
		l.local = rate.NewLimiter(rate.Limit(perSecond), burst)
		l.local.AllowN(began, burst)
	}
	l.local.SetLimit(rate.Limit(perSecond))
	l.local.SetBurst(burst)
	l.localUntil = time.Now().Add(localPeriod) //nolint:forbidigo // only for a pause
}

// takeLocal waits for a token of this process's own limiter. It distributes that token and the
// others that waiters want and the limiter has by then. It gives up when the period of the limiter
// ends.
func (l *FleetLimiter) takeLocal(ctx context.Context, w *tokenWaiter) {
	reservation := l.local.Reserve()
	delay, left := reservation.Delay(), time.Until(l.localUntil)
	if !l.pause(ctx, w, min(delay, left)) || delay > left {
		reservation.Cancel()
		return
	}
	tokens := 1
	for wanted := l.wanted(); tokens < wanted && l.local.Allow(); {
		tokens++
	}
	l.give(tokens)
}

// fetch takes up to n tokens from Redis. If there are none, it returns the time until the next
// token. The end of ctx does not cancel a request, since Redis may have taken the tokens already.
//
// fetch does not use redis_rate's AllowAtMost, which also discards the accrued fraction of a token.
// AllowN takes all n tokens or none. From its RetryAfter, the time until there are n tokens, fetch
// computes how many are missing, and asks for the others.
func (l *FleetLimiter) fetch(ctx context.Context, n int) (tokens int, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limiterTimeout)
	defer cancel()
	result, err := l.shared.AllowN(ctx, l.name, l.limit, n)
	switch {
	case err != nil:
		return 0, 0, err
	case result.Allowed > 0:
		return result.Allowed, 0, nil
	}
	missing := int(math.Ceil(float64(result.RetryAfter) / float64(l.limit.Period)))
	if missing >= n {
		return 0, result.RetryAfter - time.Duration(n-1)*l.limit.Period, nil
	}
	if result, err = l.shared.AllowN(ctx, l.name, l.limit, n-missing); err != nil {
		return 0, 0, err
	}
	return result.Allowed, 0, nil
}

// pause waits for the duration and returns true. If the context ends or w gets tokens, it returns
// false at once.
func (l *FleetLimiter) pause(ctx context.Context, w *tokenWaiter, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.done:
	case <-timer.C:
		return ctx.Err() == nil // select picks at random if several cases are ready
	}
	return false
}

// wanted returns the number of tokens that the next request asks for: 0 if there is no waiter.
func (l *FleetLimiter) wanted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, waiting := range l.waiting {
		for _, w := range waiting {
			n += w.wanted
		}
	}
	return min(n, maxTokensPerRequest, l.limit.Burst)
}

// give gives tokens to waiters. Tokens that no waiter wants are lost.
func (l *FleetLimiter) give(tokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.distribute(tokens)
}

// distribute gives the tokens to the organisations in rotation, one token at a time. Within an
// organisation the oldest waiter comes first, until it has all tokens that it wants. Afterwards the
// wait of every waiter with a token ends. The caller holds mu.
func (l *FleetLimiter) distribute(tokens int) {
	var served []*tokenWaiter
	for ; tokens > 0 && len(l.rotation) > 0; tokens-- {
		organisation := l.rotation[0]
		l.rotation = append(l.rotation[1:], organisation)
		oldest := l.waiting[organisation][0]
		if oldest.tokens++; oldest.tokens == 1 {
			served = append(served, oldest)
		}
		if oldest.tokens == oldest.wanted {
			l.remove(oldest)
		}
	}
	for _, w := range served {
		l.remove(w)
		close(w.done)
	}
}

// remove removes the waiter if it is still waiting. The caller holds mu.
func (l *FleetLimiter) remove(w *tokenWaiter) {
	remaining := slices.DeleteFunc(l.waiting[w.organisation], func(o *tokenWaiter) bool { return o == w })
	l.waiting[w.organisation] = remaining
	if len(remaining) == 0 {
		delete(l.waiting, w.organisation)
		l.rotation = slices.DeleteFunc(l.rotation, func(o models.OrganisationID) bool { return o == w.organisation })
	}
}
