package jobs

import (
	"container/list"
	"context"
	"sync"

	"partnerbilling/models"
)

// Permits bounds how many debits a process has under way on the rail. They are handed out in waves: a permit that comes free
// does not send one row on its way alone, where a moment later it would be many in one call. A wave goes to the organisation
// that has the fewest permits of those that wait, so that one with much to do never stands in the way of another; who has as
// many waits in turn.
type Permits struct {
	mu      sync.Mutex
	free    int
	wave    int // the least that is handed out to who wants that many
	held    map[models.OrganisationID]int
	waiting *list.List // of *waiter
}

type waiter struct {
	organisation models.OrganisationID
	n            int
	granted      chan int // holds one
}

// waveParts is into how many waves the permits are divided at least. With more, calls are smaller; with fewer, more permits
// lie idle until a wave is full.
const waveParts = 8

// NewPermits makes n permits; n is at least 1.
func NewPermits(n int) *Permits {
	n = max(n, 1)
	return &Permits{free: n, wave: max(1, n/waveParts), held: map[models.OrganisationID]int{}, waiting: list.New()}
}

// Take waits for a wave of permits and takes as many more as are there, n at most. It returns how many; 0 if the context
// ended first.
func (p *Permits) Take(ctx context.Context, organisation models.OrganisationID, n int) int {
	if ctx.Err() != nil {
		return 0
	}
	p.mu.Lock()
	if p.waiting.Len() == 0 && p.suffices(n) {
		taken := p.grant(organisation, n)
		p.mu.Unlock()
		return taken
	}
	w := &waiter{organisation: organisation, n: n, granted: make(chan int, 1)}
	place := p.waiting.PushBack(w)
	p.serve() // a small wish of one who has little may be met at once
	p.mu.Unlock()
	select {
	case taken := <-w.granted:
		return taken
	case <-ctx.Done():
		return p.leave(place, w)
	}
}

// leave gives up waiting. Permits that were granted meanwhile are given to the next.
func (p *Permits) leave(place *list.Element, w *waiter) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case taken := <-w.granted:
		p.giveBack(w.organisation, taken)
	default:
		p.waiting.Remove(place)
	}
	p.serve()
	return 0
}

// Give returns n permits of an organisation.
func (p *Permits) Give(organisation models.OrganisationID, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(organisation, n)
	p.serve()
}

func (p *Permits) giveBack(organisation models.OrganisationID, n int) {
	p.free += n
	if p.held[organisation] -= n; p.held[organisation] == 0 {
		delete(p.held, organisation)
	}
}

// serve grants what is free, to the one whose turn it is and no other.
func (p *Permits) serve() {
	for place := p.next(); place != nil; place = p.next() {
		w := place.Value.(*waiter) //nolint:forcetypeassert // nothing else is in the list
		if !p.suffices(w.n) {
			return
		}
		p.waiting.Remove(place)
		w.granted <- p.grant(w.organisation, w.n)
	}
}

// next is the first in the list of those whose organisation holds the least.
func (p *Permits) next() *list.Element {
	var best *list.Element
	least := 0
	for place := p.waiting.Front(); place != nil; place = place.Next() {
		held := p.held[place.Value.(*waiter).organisation] //nolint:forcetypeassert // nothing else is in the list
		if best == nil || held < least {
			best, least = place, held
		}
	}
	return best
}

func (p *Permits) suffices(n int) bool { return p.free >= min(n, p.wave) }

func (p *Permits) grant(organisation models.OrganisationID, n int) int {
	n = min(n, p.free)
	p.free -= n
	p.held[organisation] += n
	return n
}
