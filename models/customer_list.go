package models

// LinkPosition is an item's position in the customer list, by InvitedAt.
type LinkPosition = Position[LinkID]

func (l *CustomerLink) position() LinkPosition { return LinkPosition{l.InvitedAt, l.ID} }

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

// LinkPage is one page of the list: links in effective state, without KeyID and TraceID.
type LinkPage = Page[CustomerLink, LinkID]
