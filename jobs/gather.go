package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// gatherMost is the most that is done as one.
	gatherMost = 256
	// gatherWithin bounds one doing.
	gatherWithin = 10 * time.Second
)

// gather does what callers ask for at about the same time as one: while one doing is under way, those who come meanwhile wait
// for the next. So nobody waits for company, and the more there is to do, the cheaper each becomes. It has a goroutine
// only while somebody asks.
type gather[A, R any] struct {
	// do answers all that it is asked, in their order, or fails for all of them.
	do func(ctx context.Context, asked []A) ([]R, error)

	mu      sync.Mutex
	waiting []asking[A, R]
	busy    bool
}

// asking is one who asks, and where the answer goes.
type asking[A, R any] struct {
	what  A
	reply chan<- reply[R]
}

type reply[R any] struct {
	value R
	err   error
}

// ask waits for the answer, which comes within a bounded time, also after the caller's context has ended: what was done must be
// known.
func (g *gather[A, R]) ask(ctx context.Context, what A) (R, error) {
	got := make(chan reply[R], 1)
	g.mu.Lock()
	g.waiting = append(g.waiting, asking[A, R]{what, got})
	first := !g.busy
	g.busy = true
	g.mu.Unlock()
	if first {
		go g.run(context.WithoutCancel(ctx))
	}
	a := <-got
	return a.value, a.err
}

// run answers until nobody waits.
func (g *gather[A, R]) run(ctx context.Context) {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), gatherMost)
		now := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.busy = n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		g.answer(ctx, now)
	}
}

func (g *gather[A, R]) answer(ctx context.Context, all []asking[A, R]) {
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

var errPanic = errors.New("jobs: panic")

// safely does it. A panic is an error of all who asked: nobody above could catch it before it ended the process.
func (g *gather[A, R]) safely(ctx context.Context, asked []A) (values []R, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, fault, debug.Stack())
		}
	}()
	return g.do(ctx, asked)
}
