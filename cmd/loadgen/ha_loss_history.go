package main

import (
	"sync"
	"time"
)

// span is the time from a request to its answer. The acknowledged change was committed within it.
type span struct{ from, to time.Time }

// since returns the span of a request that began at the time and has just been answered.
func since(began time.Time) span { return span{began, time.Now()} }

func (s span) overlaps(o span) bool { return !s.from.After(o.to) && !o.from.After(s.to) }

// lossHistory records the windows of time whose commits a promotion may have lost. A change that
// was acknowledged outside of them must never vanish.
type lossHistory struct {
	mu      sync.Mutex
	windows []span // one for each promotion with loss
	open    bool   // the last window has not ended
}

// begin begins a window: the standby has all earlier commits, and gets no later ones.
func (l *lossHistory) begin(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows, l.open = append(l.windows, span{from: at}), true
}

// end ends the window: the promoted server accepts commits.
func (l *lossHistory) end(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows[len(l.windows)-1].to, l.open = at, false
}

// ended returns the windows that have ended, without the first skip ones.
func (l *lossHistory) ended(skip int) []span {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.windows
	if l.open {
		all = all[:len(all)-1]
	}
	return append([]span(nil), all[skip:]...)
}

// mayBeLost reports whether a promotion may have lost a change that was committed in the span.
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
