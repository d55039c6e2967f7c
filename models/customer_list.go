package models

// LinkPosition is a link's position in the customer list: its InvitedAt and ID.
type LinkPosition = Position[LinkID]

// position returns the link's position in the customer list.
func (l *CustomerLink) position() LinkPosition { return LinkPosition{l.InvitedAt, l.ID} }

// LinkQuery asks for one page of a Site's customer links, ordered by InvitedAt and then ID, newest
// first.
type LinkQuery struct {
	SiteID      SiteID
	State       LinkState    // the effective state, as LinkState.At defines it; "": all
	InvitedFrom *Millis      // inclusive; nil: no bound
	InvitedTo   *Millis      // inclusive; nil: no bound
	Direction   Direction    // of the page, seen from At
	At          LinkPosition // the page begins after it; zero: at an end, see Position
	Limit       int          // the maximum number of links, 1 to 100
}

// LinkPage is one page of a Site's customer links. The links have their effective state, but
// neither RevokedAt, KeyID nor TraceID.
type LinkPage = Page[CustomerLink, LinkID]
