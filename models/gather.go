package models

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// gatherMost is the most that is done as one.
	gatherMost = 256
	// gatherWithin bounds one doing.
	gatherWithin = 10 * time.Second
)

// Gather does what callers ask for at about the same time as one: while one doing is under way, those who come meanwhile wait
// for the next. So nobody waits for company, unless Every says so, and the more there is to do, the cheaper each becomes. It has a goroutine
// only while somebody asks. It is safe for concurrent use.
type Gather[A, R any] struct {
	// Do answers all that it is asked, in their order, or fails for all of them. It has a bounded time, and none of the callers'
	// contexts.
	Do func(ctx context.Context, asked []A) ([]R, error)
	// Every is the least time from the beginning of one doing to that of the next, unless as many wait as one may do: what costs
	// much whatever it is asked may so be asked for more. Who asks after it has been idle never waits. 0: no least time.
	Every time.Duration

	mu      sync.Mutex
	waiting []asking[A, R]
	busy    bool
	full    chan struct{}    // closed once as many wait as one doing may do; nil while nobody pauses
	next    <-chan time.Time // tells when the next doing may begin; nil: it may
}

// asking is one who asks, and where the answer goes.
type asking[A, R any] struct {
	ctx   context.Context //nolint:containedctx // to leave out those who have left
	what  A
	reply chan<- reply[R]
}

type reply[R any] struct {
	value R
	err   error
}

// Ask waits for the answer. Once the caller's context has ended, the answer is that; what is being done then is done all the same.
// Who must know what was done asks with a context that does not end: the answer comes within a bounded time.
func (g *Gather[A, R]) Ask(ctx context.Context, what A) (R, error) {
	got := make(chan reply[R], 1)
	g.mu.Lock()
	g.waiting = append(g.waiting, asking[A, R]{ctx, what, got})
	first := !g.busy
	g.busy = true
	if g.full != nil && len(g.waiting) >= gatherMost {
		close(g.full)
		g.full = nil
	}
	g.mu.Unlock()
	if first {
		go g.run(context.WithoutCancel(ctx))
	}
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// run answers until nobody waits.
func (g *Gather[A, R]) run(ctx context.Context) {
	for {
		g.pause()
		g.mu.Lock()
		n := min(len(g.waiting), gatherMost)
		now := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.busy = n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		now = slices.DeleteFunc(now, func(a asking[A, R]) bool { return a.ctx.Err() != nil })
		if len(now) > 0 {
			g.answer(ctx, now)
		}
	}
}

// pause waits until the next doing may begin.
func (g *Gather[A, R]) pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Every == 0 || len(g.waiting) == 0 {
		return
	}
	if next := g.next; next != nil && len(g.waiting) < gatherMost {
		full := make(chan struct{})
		g.full = full
		g.mu.Unlock()
		select {
		case <-next:
		case <-full:
		}
		g.mu.Lock()
		g.full = nil
	}
	g.next = time.After(g.Every)
}

func (g *Gather[A, R]) answer(ctx context.Context, all []asking[A, R]) {
	ctx, cancel := context.WithTimeout(ctx, gatherWithin)
	defer cancel()
	asked := make([]A, len(all))
	for i := range all {
		asked[i] = all[i].what
	}
	values, err := g.safely(ctx, asked)
	for i := range all {
		a := reply[R]{err: err}
		if err == nil {
			a.value = values[i]
		}
		all[i].reply <- a
	}
}

// safely does it. A panic is an error of all who asked.
func (g *Gather[A, R]) safely(ctx context.Context, asked []A) (values []R, err error) {
	defer CatchPanic(&err)
	return g.Do(ctx, asked)
}
