package main

import (
	"sync"
	"time"
)

// span is the time from a request to its answer. The change that the answer acknowledges was
// committed within that time.
type span struct{ from, to time.Time }

// since returns the span of a request that began at the time and has just been answered.
func since(began time.Time) span { return span{began, time.Now()} }

// overlaps reports whether the spans have a time in common.
func (s span) overlaps(o span) bool { return !s.from.After(o.to) && !o.from.After(s.to) }

// lossHistory records windows of time. A promotion of a lagging standby may have lost the commits
// within a window. A change that was committed outside of all windows must never vanish. It is safe
// for concurrent use.
type lossHistory struct {
	mu      sync.Mutex
	windows []span // one for each promotion with loss
	open    bool   // the last window has not ended
}

// begin begins a window at a time up to which the standby has all commits.
func (l *lossHistory) begin(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows, l.open = append(l.windows, span{from: at}), true
}

// end ends the window at a time from which the promoted server accepts commits.
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

// mayBeLost reports whether a promotion may have lost a change that was committed within the span.
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
