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

// askWithin bounds one question to Redis; a slow Redis must not hold up what the limit is for.
const askWithin = 250 * time.Millisecond

// askForMost is how many turns one question asks for.
const askForMost = 32

// askEvery is how long after a question that brought less than was wanted the next one comes at the earliest: at a high rate there
// are several turns by then, and who waits gets them together.
const askEvery = 10 * time.Millisecond

// FleetLimiter spaces events of all processes on one Redis: each is somebody's turn. While Redis does not answer, each process
// keeps to the rate by itself: the fleet may then exceed it, which is better than to stand still. Within a process the
// organisations that wait take turns, however many events each of them has.
type FleetLimiter struct {
	shared *redis_rate.Limiter
	own    *rate.Limiter
	name   string
	limit  redis_rate.Limit
	asking chan struct{} // full while one of those who wait asks for all of them

	notBefore time.Time // when the next question is worth putting; the asker's

	mu      sync.Mutex
	waiting map[models.OrganisationID][]*taker
	order   []models.OrganisationID // whose turn it is, of those with somebody waiting
}

// taker is one who waits for turns.
type taker struct {
	organisation models.OrganisationID
	wanted       int
	turns        int
	served       chan struct{} // closed when it need not wait any longer: its turns are there
}

// NewFleetLimiter allows so many events of a name per second, with bursts of one second's worth. perSecond is above 0.
func NewFleetLimiter(client *redis.Client, name string, perSecond float64) *FleetLimiter {
	burst := max(1, int(perSecond))
	return &FleetLimiter{
		shared: redis_rate.NewLimiter(client), own: rate.NewLimiter(rate.Limit(perSecond), burst), name: name,
		limit:  redis_rate.Limit{Rate: 1, Burst: burst, Period: time.Duration(float64(time.Second) / perSecond)},
		asking: make(chan struct{}, 1), waiting: map[models.OrganisationID][]*taker{},
	}
}

// Take waits for turns of an organisation, and takes as many as there are for it, n at most. It returns how many: 0 if the context
// ended first, or if n is below 1.
func (l *FleetLimiter) Take(ctx context.Context, organisation models.OrganisationID, n int) int {
	if ctx.Err() != nil || n < 1 {
		return 0
	}
	t := l.join(organisation, n)
	for {
		select {
		case <-t.served:
			return t.turns
		case <-ctx.Done():
			l.leave(t)
			return 0
		case l.asking <- struct{}{}:
			l.ask(ctx, t)
			<-l.asking
		}
	}
}

func (l *FleetLimiter) join(organisation models.OrganisationID, n int) *taker {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &taker{organisation: organisation, wanted: n, served: make(chan struct{})}
	if len(l.waiting[organisation]) == 0 {
		l.order = append(l.order, organisation)
	}
	l.waiting[organisation] = append(l.waiting[organisation], t)
	return t
}

// leave gives up waiting. Turns that came meanwhile are the next ones'; those that nobody waits for lapse, since on top of a later
// burst they would be too many.
func (l *FleetLimiter) leave(t *taker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(t)
	l.serve(t.turns)
}

// ask asks for turns once and hands them out, no sooner than there may be some; not at all if the asker leaves or is served before.
func (l *FleetLimiter) ask(ctx context.Context, t *taker) {
	if !l.pause(ctx, t, time.Until(l.notBefore)) {
		return
	}
	wanted := l.wanted()
	if wanted == 0 { // the asker has been served after all
		return
	}
	turns, next, err := l.allow(ctx, wanted)
	if err != nil {
		l.alone(ctx, t)
		return
	}
	if turns < wanted {
		now := time.Now() //nolint:forbidigo // only for the length of a pause; turns go by the Redis server's clock
		l.notBefore = now.Add(max(next, askEvery))
	}
	l.give(turns) // also if the asker has left: they are the others'
}

// alone waits for a turn by this process's own count.
func (l *FleetLimiter) alone(ctx context.Context, t *taker) {
	own := l.own.Reserve()
	if l.pause(ctx, t, own.Delay()) {
		l.give(1)
	} else {
		own.Cancel()
	}
}

// allow asks Redis for n turns, and, if it has fewer, for those that it has. (To ask for n at most would use up the fraction of a
// turn that is there beside the whole ones, and not hand it out.) With no turn there it tells when there may be one. A question that
// has been put is waited for even if the asker leaves: its answer counts.
func (l *FleetLimiter) allow(ctx context.Context, n int) (turns int, next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin)
	defer cancel()
	answer, err := l.shared.AllowN(ctx, l.name, l.limit, n)
	switch {
	case err != nil:
		return 0, 0, err
	case answer.Allowed > 0:
		return answer.Allowed, 0, nil
	}
	missing := int(math.Ceil(float64(answer.RetryAfter) / float64(l.limit.Period)))
	if missing >= n {
		return 0, answer.RetryAfter - time.Duration(n-1)*l.limit.Period, nil
	}
	if answer, err = l.shared.AllowN(ctx, l.name, l.limit, n-missing); err != nil {
		return 0, 0, err
	}
	return answer.Allowed, 0, nil
}

// pause waits for d, and reports whether it did: it ends early with the context, or when the asker is served.
func (l *FleetLimiter) pause(ctx context.Context, t *taker, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-t.served:
	case <-timer.C:
		return ctx.Err() == nil // select picks at random when several are ready
	}
	return false
}

// wanted is how many turns are worth asking for; 0 if nobody waits.
func (l *FleetLimiter) wanted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, waiting := range l.waiting {
		for _, t := range waiting {
			n += t.wanted
		}
	}
	return min(n, askForMost, l.limit.Burst)
}

func (l *FleetLimiter) give(turns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve(turns)
}

// serve gives turns to the organisations in their order, one each as long as there are any; those of one organisation go to who came
// first, until it has what it wants. Who has got any goes on with those.
func (l *FleetLimiter) serve(turns int) {
	var served []*taker
	for ; turns > 0 && len(l.order) > 0; turns-- {
		next := l.order[0]
		l.order = append(l.order[1:], next)
		first := l.waiting[next][0]
		if first.turns++; first.turns == 1 {
			served = append(served, first)
		}
		if first.turns == first.wanted {
			l.remove(first)
		}
	}
	for _, t := range served {
		l.remove(t)
		close(t.served)
	}
}

// remove takes a taker out of those who wait, if it is among them.
func (l *FleetLimiter) remove(t *taker) {
	rest := slices.DeleteFunc(l.waiting[t.organisation], func(o *taker) bool { return o == t })
	l.waiting[t.organisation] = rest
	if len(rest) == 0 {
		delete(l.waiting, t.organisation)
		l.order = slices.DeleteFunc(l.order, func(o models.OrganisationID) bool { return o == t.organisation })
	}
}
