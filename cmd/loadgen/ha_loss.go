package main

import (
	"sync"
	"time"
)

// span is the time from a request to its answer: what the answer acknowledges was committed within it.
type span struct{ from, to time.Time }

// since is the span of a request that began then and has just been answered.
func since(began time.Time) span { return span{began, time.Now()} }

func (s span) overlaps(o span) bool { return !s.from.After(o.to) && !o.from.After(s.to) }

// lossHistory knows when commits were made that a promotion has lost. Everything acknowledged outside of these times must
// be there for ever.
type lossHistory struct {
	mu      sync.Mutex
	windows []span // of promotions with loss; the last one may still be open
	open    bool
}

// begin says that the standby has all that was committed by now, and gets no more.
func (l *lossHistory) begin(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows, l.open = append(l.windows, span{from: at}), true
}

// end says that the promoted server accepts commits.
func (l *lossHistory) end(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows[len(l.windows)-1].to, l.open = at, false
}

// ended returns the windows that have ended, the first so many left out.
func (l *lossHistory) ended(seen int) []span {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.windows
	if l.open {
		all = all[:len(all)-1]
	}
	return append([]span(nil), all[seen:]...)
}

// mayBeLost reports whether what was acknowledged in that time may have been lost by any promotion.
func (l *lossHistory) mayBeLost(s span) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.windows {
		if l.open && i == len(l.windows)-1 {
			w.to = time.Now()
		}
		if s.overlaps(w) {
			return true
		}
	}
	return false
}
