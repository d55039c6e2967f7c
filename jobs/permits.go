package jobs

import (
	"container/list"
	"context"
	"sync"
)

// Permits bounds how many debits a process has under way on the rail. They are handed out in waves, first come first
// served: a permit that comes free does not send one row on its way alone, where a moment later it would be many in one call.
type Permits struct {
	mu      sync.Mutex
	free    int
	wave    int        // the least that is handed out to who wants that many
	waiting *list.List // of *waiter
}

type waiter struct {
	n       int
	granted chan int // holds one
}

// waveParts is into how many waves the permits are divided at least. With more, calls are smaller; with fewer, more permits
// lie idle until a wave is full.
const waveParts = 8

// NewPermits makes n permits; n is at least 1.
func NewPermits(n int) *Permits {
	n = max(n, 1)
	return &Permits{free: n, wave: max(1, n/waveParts), waiting: list.New()}
}

// Take waits for a wave of permits and takes as many more as are there, n at most. It returns how many; 0 if the context
// ended first.
func (p *Permits) Take(ctx context.Context, n int) int {
	if ctx.Err() != nil {
		return 0
	}
	p.mu.Lock()
	if p.waiting.Len() == 0 && p.suffices(n) {
		taken := p.grant(n)
		p.mu.Unlock()
		return taken
	}
	w := &waiter{n: n, granted: make(chan int, 1)}
	place := p.waiting.PushBack(w)
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
		p.free += taken
	default:
		p.waiting.Remove(place)
	}
	p.serve()
	return 0
}

// Give returns n permits.
func (p *Permits) Give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.serve()
}

// serve grants what is free to those who wait, in their order.
func (p *Permits) serve() {
	for front := p.waiting.Front(); front != nil; front = p.waiting.Front() {
		w := front.Value.(*waiter) //nolint:forcetypeassert // nothing else is in the list
		if !p.suffices(w.n) {
			return
		}
		p.waiting.Remove(front)
		w.granted <- p.grant(w.n)
	}
}

func (p *Permits) suffices(n int) bool { return p.free >= min(n, p.wave) }

func (p *Permits) grant(n int) int {
	n = min(n, p.free)
	p.free -= n
	return n
}
