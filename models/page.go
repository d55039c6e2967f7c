package models

import (
	"math"
	"strconv"
	"strings"

	"partnerbilling/models/postgres"
)

// Direction is the direction of a page from its position, in a list ordered newest first.
type Direction string

// The directions of a page.
const (
	Forward  Direction = "forward"  // towards older items
	Backward Direction = "backward" // towards newer items
)

// Position is an item's position in a list that is ordered by time and then by key, newest first. A
// page holds the items beyond its position. The zero position is the beginning of the list going
// forward, and its end going backward.
type Position[K comparable] struct {
	At  Millis
	Key K
}

// Page is one page of a list, with figures of the whole list from the same snapshot.
type Page[T any, K comparable] struct {
	Items []T          // newest first
	Total int64        // all items that match; 0 if the list does not count them
	Next  *Position[K] // where the next page (Forward) begins; nil on the last page
	Prev  *Position[K] // where the page before (Backward) begins; nil on the first page
	Now   Millis       // service time of that moment
}

// maxPage is the maximum number of items on a page of most lists.
const maxPage = 100

// maxListTime is later than any service time, and one millisecond more is still a valid time.
const maxListTime = Millis(MaxAmount)

// pageQuery is the part that the queries of all lists have in common.
type pageQuery[K comparable] struct {
	from, to  *Millis // inclusive; nil: no bound
	direction Direction
	at        Position[K]
	limit     int
}

// listSpan is the part of a list that a query reads: from its position, where an index scan starts,
// to the end of its time range. It also bounds the part behind the position.
type listSpan[K comparable] struct {
	from, to      Millis // both inclusive
	ahead, behind Position[K]
}

// span returns the span of a query in a list without items after last and without keys above
// highest. It moves the position into the time range, where the scan starts. The first page of a
// walk does not look behind its position.
func (q pageQuery[K]) span(last Millis, highest K) listSpan[K] {
	s := listSpan[K]{to: last, ahead: q.at, behind: q.at}
	if q.from != nil {
		s.from = min(max(*q.from, 0), last)
	}
	if q.to != nil {
		s.to = min(*q.to, last)
	}
	s.to = max(s.to, s.from-1)
	isFirst := q.at == Position[K]{}
	if q.direction == Backward {
		if isFirst {
			s.behind.At = -1
		}
		if s.ahead.At < s.from {
			s.ahead = Position[K]{s.from - 1, highest}
		}
		if s.behind.At > s.to {
			s.behind = Position[K]{s.to, highest}
		}
		return s
	}
	if isFirst {
		s.ahead.At, s.behind.At = math.MaxInt64, math.MaxInt64
	}
	if s.ahead.At > s.to {
		s.ahead = Position[K]{At: s.to + 1}
	}
	if s.behind.At < s.from {
		s.behind = Position[K]{At: s.from}
	}
	return s
}

// args returns the arguments that the statements of lists have in common. The limit is one more
// than the page's, to find out whether items follow.
func (s listSpan[K]) args(limit int) postgres.Args {
	return postgres.Args{
		"from": s.from, "to": s.to, "ahead_at": s.ahead.At, "ahead_key": s.ahead.Key,
		"behind_at": s.behind.At, "behind_key": s.behind.Key, "limit": limit + 1,
	}
}

// listStatement is a list's statement in both directions.
type listStatement struct{ forward, backward postgres.Statement }

// newListStatement makes a list's statement from its text, in which psql variables in upper case
// stand for SQL. These depend on the direction, as in the comparison of an item with a position:
//
//	:AHEAD   < or >, of items beyond the position
//	:BEHIND  >= or <=, of the other items
//	:UNTIL   >= :from or <= :to, the end of the time range
//	:SINCE   <= :to or >= :from, its beginning
//	:ORDER   DESC or ASC, the order going ahead
//	:BACK    ASC or DESC, the order going back
//
// :MOST is the largest limit. Postgres expects many rows of a limit that is a parameter, and would
// sort; a scan inside a fixed limit ends at the parameter as well. more are further variables and
// their SQL.
func newListStatement(text string, most int, more ...string) listStatement {
	in := func(variables ...string) postgres.Statement {
		variables = append(variables, ":MOST", strconv.Itoa(most+1))
		return postgres.SQL(strings.NewReplacer(append(variables, more...)...).Replace(text))
	}
	return listStatement{
		forward: in(":AHEAD", "<", ":BEHIND", ">=", ":UNTIL", ">= :from", ":SINCE", "<= :to", ":ORDER", "DESC",
			":BACK", "ASC"),
		backward: in(":AHEAD", ">", ":BEHIND", "<=", ":UNTIL", "<= :to", ":SINCE", ">= :from", ":ORDER", "ASC",
			":BACK", "DESC"),
	}
}

func (l listStatement) going(d Direction) postgres.Statement {
	if d == Backward {
		return l.backward
	}
	return l.forward
}

// listHead are the columns about the whole list, which every row of its statement has.
type listHead struct {
	Now    Millis
	Total  int64
	Behind bool // items exist on the other side of the position
}

func (h *listHead) head() listHead { return *h }

// listRow is a row of a list's statement. A page without items has one row, whose item is nil.
type listRow[T any] interface {
	head() listHead
	item() *T
}

// pageOf makes a page from the rows of a list's statement, which are in list order.
func pageOf[R listRow[T], T any, K comparable](
	rows []R, q pageQuery[K], position func(*T) Position[K],
) Page[T, K] {
	found := make([]T, 0, len(rows))
	for _, row := range rows {
		if item := row.item(); item != nil {
			found = append(found, *item)
		}
	}
	head := rows[0].head()
	page := Page[T, K]{Total: head.Total, Now: head.Now}
	page.cut(found, q, head.Behind, position)
	return page
}

// cut fills in the items that were found in a query's direction, one more than the limit if there
// are more, and the positions of the adjacent pages. behind reports whether items exist on the
// other side of the position. An empty page leads back to the end, or the beginning, of the list.
func (p *Page[T, K]) cut(found []T, q pageQuery[K], behind bool, position func(*T) Position[K]) {
	ahead := len(found) > q.limit
	p.Items = found[:min(len(found), q.limit)]
	hasNext, hasPrev := ahead, behind
	if q.direction == Backward {
		p.Items = found[len(found)-len(p.Items):]
		hasNext, hasPrev = behind, ahead
	}
	var first, last Position[K]
	if n := len(p.Items); n > 0 {
		first, last = position(&p.Items[0]), position(&p.Items[n-1])
	}
	if hasNext {
		p.Next = &last
	}
	if hasPrev {
		p.Prev = &first
	}
}
