package models

import (
	"bytes"
	"cmp"
)

// Direction is the direction of a page from its position, in a list ordered newest first.
type Direction string

// The directions of a page.
const (
	Forward  Direction = "forward"  // towards older items
	Backward Direction = "backward" // towards newer items
)

// LinkPosition is an item's position in the customer list. A page holds the items beyond its
// position. The zero position is the beginning of the list going forward, and its end going
// backward.
type LinkPosition struct {
	InvitedAt Millis
	ID        LinkID
}

// compare is negative if p is before q in time, and so after q in the list.
func (p LinkPosition) compare(q LinkPosition) int {
	return cmp.Or(cmp.Compare(p.InvitedAt, q.InvitedAt), bytes.Compare(p.ID[:], q.ID[:]))
}

func (l *Link) position() LinkPosition { return LinkPosition{l.InvitedAt, l.ID} }

// LinkQuery asks for one page of a Site's links, ordered by InvitedAt and then ID, newest first.
type LinkQuery struct {
	SiteID      SiteID
	State       LinkState // effective; "": all
	InvitedFrom *Millis   // inclusive; nil: no bound
	InvitedTo   *Millis   // inclusive; nil: no bound
	Direction   Direction
	From        LinkPosition
	Limit       int // items at most, 1 to 100
}

// LinkPage is one page of the list, with figures of the whole list from the same snapshot.
type LinkPage struct {
	Links []Link        // in effective state, newest first; without KeyID and TraceID
	Total int64         // all links that match
	Next  *LinkPosition // where the next page (Forward) begins; nil on the last page
	Prev  *LinkPosition // where the page before (Backward) begins; nil on the first page
	Now   Millis        // service time of that moment
}
