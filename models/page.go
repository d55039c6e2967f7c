package models

import (
	"math"
	"strconv"
	"strings"

	"partnerbilling/models/postgres"
)

// Direction is the direction in which a page continues from its position. Lists are ordered newest
// first.
type Direction string

// The directions of a page.
const (
	Forward  Direction = "forward"  // towards older items
	Backward Direction = "backward" // towards newer items
)

// Position is an item's position in a list that is ordered by time and then by key, newest first. A
// page holds the items that follow its position in its direction, without the item at the position.
// The zero position is the newest end of the list for Forward, and the oldest end for Backward.
type Position[K comparable] struct {
	At  Millis
	Key K
}

// Page is one page of a list. Its items and its total come from one snapshot.
type Page[T any, K comparable] struct {
	Items []T          // newest first
	Total int64        // matching items on all pages; 0 if the list does not count them
	Next  *Position[K] // position of the next page, read Forward; nil on the last page
	Prev  *Position[K] // position of the previous page, read Backward; nil on the first page
	Now   Millis       // service time when the page was read
}

// maxPage is the maximum number of items on a page of most lists.
const maxPage = 100

// maxListTime is later than any service time.
const maxListTime = Millis(MaxAmount)

// pageQuery holds the fields that the queries of all lists share.
type pageQuery[K comparable] struct {
	from, to  *Millis // inclusive; nil: no bound
	direction Direction
	at        Position[K]
	limit     int
}

// listSpan bounds the two index scans of a list statement. The scan for the page starts at ahead
// and runs in the page's direction. The scan for items behind the page starts at behind and runs
// the other way. The item at the position counts as behind the page.
type listSpan[K comparable] struct {
	from, to      Millis // time range of both scans, inclusive; empty if to is from-1
	ahead, behind Position[K]
}

// span returns the span of a query. The list has no item later than last, and no key that sorts
// above highest. If a scan would pass items outside the time range before it enters the range, span
// moves its start to the edge. The first page has no items behind it: behind then lies past the
// range, so that the statement skips the scan behind the page.
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

// args returns the arguments that all list statements share. Their limit is one item more than the
// page holds: that item shows that another page follows.
func (s listSpan[K]) args(limit int) postgres.Args {
	return postgres.Args{
		"from": s.from, "to": s.to, "ahead_at": s.ahead.At, "ahead_key": s.ahead.Key,
		"behind_at": s.behind.At, "behind_key": s.behind.Key, "limit": limit + 1,
	}
}

// listStatement holds the statements of a list, one for each direction.
type listStatement struct{ forward, backward postgres.Statement }

// newListStatement makes the statements of a list from one text. It replaces the text's psql
// variables in upper case with SQL, first for Forward and second for Backward:
//
//	:AHEAD   < or >     compares an item with :ahead, for the page
//	:BEHIND  >= or <=   compares an item with :behind, for items behind the page
//	:UNTIL   >= :from or <= :to, the end of the time range in the page's direction
//	:SINCE   <= :to or >= :from, the other end
//	:ORDER   DESC or ASC, the order of the scan for the page
//	:BACK    ASC or DESC, the order of the scan behind the page
//	:MOST    most+1, the largest value of the argument limit
//
// Texts nest a LIMIT :MOST inside LIMIT :limit. For a parameter alone, Postgres expects many rows
// and sorts. With the constant, it scans an index in order, and the scan ends at :limit. more holds
// further variables, each followed by its SQL.
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

// going returns the statement for a direction.
func (l listStatement) going(d Direction) postgres.Statement {
	if d == Backward {
		return l.backward
	}
	return l.forward
}

// listHead holds the columns about the whole list. Every row of a list statement repeats them.
type listHead struct {
	Now    Millis
	Total  int64
	Behind bool // items exist behind the page
}

func (h *listHead) head() listHead { return *h }

// listRow is a row of a list statement. An empty page still has one row, whose item is nil.
type listRow[T any] interface {
	head() listHead
	item() *T
}

// pageOf makes a page from the rows of a list statement: at least one, newest first.
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

// cut sets Items, Next and Prev. found holds the page's items, newest first. If another page
// follows in the query's direction, found holds one more: the oldest for Forward, the newest for
// Backward. behind reports whether items exist behind the page. On an empty page, the link to them
// is the zero position.
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
