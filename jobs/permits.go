package jobs

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"partnerbilling/models"
)

// Permits bounds how many calls a process has under way on the rail, and how many rows it has claimed beyond those: each of
// them has a place until its call begins. Rows are claimed no sooner than there is a place, so that they, and their
// customers' links, have been read just before they are debited, while the next ones are there when permits come free.
//
// Both are handed out in waves: a permit that comes free does not send one row on its way alone, where a moment later it
// would be many in one call. A wave goes to the organisation that has the fewest of those that wait, so that one with much to do
// never stands in the way of another. Of those that have as many, and of the chunks of one, it goes to the one that began first: its rows
// are debited, and written down, together rather than a few of every chunk at a time.
type Permits struct {
	calls, places *share
	turns         atomic.Uint64
}

// Turn is who asks for permits, and since when: for an organisation, the n-th of all that have begun.
type Turn struct {
	organisation models.OrganisationID
	n            uint64
}

// atOnce is the turn of customers who wait at a till. Their payments go before all else, and need no places.
var atOnce Turn

// Turn begins one.
func (p *Permits) Turn(organisation models.OrganisationID) Turn {
	return Turn{organisation, p.turns.Add(1)}
}

const (
	// callWaves is into how many waves the permits are divided at least. With more, calls are smaller; with fewer, more permits
	// lie idle until a wave is full.
	callWaves = 8
	// placeWaves is that for the places: of claims, few large ones are worth more than an idle place.
	placeWaves = 4
	// leastPlaces are there however few the permits are: claims of single rows would be no use to anybody.
	leastPlaces = 8
)

// NewPermits makes n permits; n is at least 1. There are a quarter more places, so that a claim can be on its way while
// all permits change hands at once.
func NewPermits(n int) *Permits {
	n = max(n, 1)
	return &Permits{calls: newShare(n, callWaves), places: newShare(max(n+n/4, leastPlaces), placeWaves)}
}

// Take waits for a wave of permits and takes as many more as are there, n at most. It returns how many; 0 if the context
// ended first.
func (p *Permits) Take(ctx context.Context, turn Turn, n int) int {
	return p.calls.take(ctx, turn, n)
}

// Give returns n permits of an organisation.
func (p *Permits) Give(organisation models.OrganisationID, n int) { p.calls.give(organisation, n) }

// TakePlaces is Take for places.
func (p *Permits) TakePlaces(ctx context.Context, turn Turn, n int) int {
	return p.places.take(ctx, turn, n)
}

// GivePlaces returns n places of an organisation.
func (p *Permits) GivePlaces(organisation models.OrganisationID, n int) {
	p.places.give(organisation, n)
}

// share is a number of things that organisations share.
type share struct {
	mu      sync.Mutex
	free    int
	wave    int // the least that is handed out to who wants that many
	held    map[models.OrganisationID]int
	waiting *list.List // of *waiter
}

type waiter struct {
	turn    Turn
	n       int
	granted chan int // holds one
}

func newShare(n, waves int) *share {
	return &share{free: n, wave: max(1, n/waves), held: map[models.OrganisationID]int{}, waiting: list.New()}
}

func (p *share) take(ctx context.Context, turn Turn, n int) int {
	if ctx.Err() != nil {
		return 0
	}
	p.mu.Lock()
	if p.waiting.Len() == 0 && p.suffices(n) {
		taken := p.grant(turn.organisation, n)
		p.mu.Unlock()
		return taken
	}
	w := &waiter{turn: turn, n: n, granted: make(chan int, 1)}
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

// leave gives up waiting. What was granted meanwhile is given to the next.
func (p *share) leave(place *list.Element, w *waiter) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case taken := <-w.granted:
		p.giveBack(w.turn.organisation, taken)
	default:
		p.waiting.Remove(place)
	}
	p.serve()
	return 0
}

func (p *share) give(organisation models.OrganisationID, n int) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveBack(organisation, n)
	p.serve()
}

func (p *share) giveBack(organisation models.OrganisationID, n int) {
	p.free += n
	if p.held[organisation] -= n; p.held[organisation] == 0 {
		delete(p.held, organisation)
	}
}

// serve grants what is free, to the one whose turn it is and no other.
func (p *share) serve() {
	for place := p.next(); place != nil; place = p.next() {
		w := place.Value.(*waiter) //nolint:forcetypeassert // nothing else is in the list
		if !p.suffices(w.n) {
			return
		}
		p.waiting.Remove(place)
		w.granted <- p.grant(w.turn.organisation, w.n)
	}
}

// next is who may not wait or, of those whose organisation holds the least, the one that began first.
func (p *share) next() *list.Element {
	var best *list.Element
	var least int
	var first uint64
	for place := p.waiting.Front(); place != nil; place = place.Next() {
		turn := place.Value.(*waiter).turn //nolint:forcetypeassert // nothing else is in the list
		held := p.held[turn.organisation]
		if turn == atOnce {
			held = -1
		}
		if best == nil || cmp.Or(cmp.Compare(held, least), cmp.Compare(turn.n, first)) < 0 {
			best, least, first = place, held, turn.n
		}
	}
	return best
}

func (p *share) suffices(n int) bool { return p.free >= min(n, p.wave) }

func (p *share) grant(organisation models.OrganisationID, n int) int {
	n = min(n, p.free)
	p.free -= n
	p.held[organisation] += n
	return n
}
