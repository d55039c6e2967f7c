package models

import (
	"cmp"
	"math"
)

// cutPage makes a page of the items found in a query's direction (in list order, one more than the limit if there are
// more) and of whether any lies behind. next and prev are where the pages after and before it begin; nil if there are
// none. A page that has become empty leads back to the end, or the beginning, of the list.
func cutPage[T, P any](
	found []T, limit int, direction Direction, behind bool, position func(*T) P,
) (items []T, next, prev *P) {
	ahead := len(found) > limit
	items = found[:min(len(found), limit)]
	hasNext, hasPrev := ahead, behind
	if direction == Backward {
		items = found[len(found)-len(items):]
		hasNext, hasPrev = behind, ahead
	}
	var first, last P
	if n := len(items); n > 0 {
		first, last = position(&items[0]), position(&items[n-1])
	}
	if hasNext {
		next = &last
	}
	if hasPrev {
		prev = &first
	}
	return items, next, prev
}

// listPosition is a position in a list that is ordered by time and then by key.
type listPosition[K any] struct {
	at  Millis
	key K
}

// keyRange is what a list's keys lie between, and how they are ordered.
type keyRange[K any] struct {
	lowest, highest K
	compare         func(a, b K) int
}

func (k keyRange[K]) isBefore(a, b listPosition[K]) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), k.compare(a.key, b.key)) < 0
}

func (k keyRange[K]) earlier(a, b listPosition[K]) listPosition[K] {
	if k.isBefore(b, a) {
		return b
	}
	return a
}

func (k keyRange[K]) later(a, b listPosition[K]) listPosition[K] {
	if k.isBefore(a, b) {
		return b
	}
	return a
}

// listSpan is the part of a list that a query reads: from its position on, which an index scan begins at, to the end of its
// range of time; and what lies behind the position.
type listSpan[K any] struct {
	from, to      Millis // both inclusive
	ahead, behind listPosition[K]
}

// maxListTime is later than any service time. One millisecond more is a valid time as well.
const maxListTime = Millis(MaxAmount)

// spanOf is the span of a query. No position lies outside the range of time: a scan would read from there to the range.
// Behind the first page of a walk nothing is looked for.
func spanOf[K any](from, to *Millis, direction Direction, at listPosition[K], isFirst bool, keys keyRange[K]) listSpan[K] {
	s := listSpan[K]{to: maxListTime, ahead: at, behind: at}
	if from != nil {
		s.from = min(max(*from, 0), maxListTime)
	}
	if to != nil {
		s.to = min(*to, maxListTime)
	}
	s.to = max(s.to, s.from-1)
	if direction == Backward {
		if isFirst {
			s.behind.at = -1
		}
		s.ahead = keys.later(s.ahead, listPosition[K]{s.from - 1, keys.highest})
		s.behind = keys.earlier(s.behind, listPosition[K]{s.to, keys.highest})
		return s
	}
	if isFirst {
		s.ahead.at, s.behind.at = math.MaxInt64, math.MaxInt64
	}
	s.ahead = keys.earlier(s.ahead, listPosition[K]{s.to + 1, keys.lowest})
	s.behind = keys.later(s.behind, listPosition[K]{s.from, keys.lowest})
	return s
}
