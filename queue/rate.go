package queue

import (
	"context"
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

// FleetLimiter spaces events of all processes on one Redis. While Redis does not answer, each process keeps to the rate by
// itself: the fleet may then exceed it, which is better than to stand still. Within a process the organisations that wait take
// turns, however many events each of them has.
type FleetLimiter struct {
	shared *redis_rate.Limiter
	own    *rate.Limiter
	name   string
	limit  redis_rate.Limit
	asking chan struct{} // full while one of those who wait asks for all of them

	mu      sync.Mutex
	waiting map[models.OrganisationID][]chan struct{}
	order   []models.OrganisationID // whose turn it is, of those with somebody waiting
}

// NewFleetLimiter allows so many events of a name per second, with bursts of one second's worth. perSecond is above 0.
func NewFleetLimiter(client *redis.Client, name string, perSecond float64) *FleetLimiter {
	burst := max(1, int(perSecond))
	return &FleetLimiter{
		shared: redis_rate.NewLimiter(client), own: rate.NewLimiter(rate.Limit(perSecond), burst), name: name,
		limit:  redis_rate.Limit{Rate: 1, Burst: burst, Period: time.Duration(float64(time.Second) / perSecond)},
		asking: make(chan struct{}, 1), waiting: map[models.OrganisationID][]chan struct{}{},
	}
}

// Wait waits for a turn; its error is that of the context.
func (l *FleetLimiter) Wait(ctx context.Context, organisation models.OrganisationID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	mine := l.join(organisation)
	for {
		select {
		case <-mine:
			return nil
		case <-ctx.Done():
			return l.leave(ctx, organisation, mine)
		case l.asking <- struct{}{}:
			select {
			case <-mine: // the turn came meanwhile
				<-l.asking
				return nil
			default:
			}
			l.ask(ctx)
			<-l.asking
		}
	}
}

func (l *FleetLimiter) join(organisation models.OrganisationID) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := make(chan struct{}, 1)
	if len(l.waiting[organisation]) == 0 {
		l.order = append(l.order, organisation)
	}
	l.waiting[organisation] = append(l.waiting[organisation], mine)
	return mine
}

// leave gives up waiting. A turn that came meanwhile is the next one's.
func (l *FleetLimiter) leave(ctx context.Context, organisation models.OrganisationID, mine chan struct{}) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-mine:
		l.serve(1)
	default:
		rest := slices.DeleteFunc(l.waiting[organisation], func(c chan struct{}) bool { return c == mine })
		l.keep(organisation, rest)
		if len(rest) == 0 {
			l.order = slices.DeleteFunc(l.order, func(o models.OrganisationID) bool { return o == organisation })
		}
	}
	return ctx.Err()
}

// ask asks for turns once, hands them out, and waits, if there are none, until there may be one.
func (l *FleetLimiter) ask(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, askWithin)
	turns, err := l.shared.AllowAtMost(asked, l.name, l.limit, l.wanted())
	cancel()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if l.own.Wait(ctx) == nil {
			l.give(1)
			return
		}
		l.pause(ctx, l.limit.Period) // no turn comes before the context ends; others ask again, but not at once
	case turns.Allowed > 0:
		l.give(turns.Allowed)
	default:
		l.pause(ctx, turns.RetryAfter)
	}
}

func (l *FleetLimiter) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// wanted is how many turns are worth asking for.
func (l *FleetLimiter) wanted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, organisation := range l.order {
		n += len(l.waiting[organisation])
	}
	return min(max(n, 1), askForMost, l.limit.Burst)
}

func (l *FleetLimiter) give(turns int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve(turns)
}

// serve gives turns to the organisations in their order, one each.
func (l *FleetLimiter) serve(turns int) {
	for ; turns > 0 && len(l.order) > 0; turns-- {
		next := l.order[0]
		l.order = l.order[1:]
		queue := l.waiting[next]
		queue[0] <- struct{}{} // holds one
		l.keep(next, queue[1:])
		if len(queue) > 1 {
			l.order = append(l.order, next)
		}
	}
}

func (l *FleetLimiter) keep(organisation models.OrganisationID, queue []chan struct{}) {
	if len(queue) == 0 {
		delete(l.waiting, organisation)
		return
	}
	l.waiting[organisation] = queue
}
