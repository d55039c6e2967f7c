package models

import (
	"cmp"
	"math"
)

// cutPage makes a page from the items found in a query's direction: in list order, one more than
// the limit if there are more. behind reports whether items exist on the other side of the
// position. next and prev are the positions of the adjacent pages; nil if there are none. An empty
// page leads back to the end, or the beginning, of the list.
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

// listPosition is a position in a list ordered by time and then by key.
type listPosition[K any] struct {
	at  Millis
	key K
}

// keyRange bounds the keys of a list and defines their order.
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

// listSpan is the part of a list that a query reads: from its position, where an index scan starts,
// to the end of its time range. It also bounds the part behind the position.
type listSpan[K any] struct {
	from, to      Millis // both inclusive
	ahead, behind listPosition[K]
}

// maxListTime is later than any service time, and one millisecond more is still a valid time.
const maxListTime = Millis(MaxAmount)

// spanOf returns the span of a query. It moves the position into the time range, where the scan
// starts. The first page of a walk does not look behind its position.
func spanOf[K any](
	from, to *Millis, direction Direction, at listPosition[K], isFirst bool, keys keyRange[K],
) listSpan[K] {
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
