package models

// LinkPosition is a link's position in the customer list: its InvitedAt and ID.
type LinkPosition = Position[LinkID]

func (l *CustomerLink) position() LinkPosition { return LinkPosition{l.InvitedAt, l.ID} }

// LinkQuery asks for one page of a Site's links, ordered by InvitedAt and then ID, newest first.
type LinkQuery struct {
	SiteID      SiteID
	State       LinkState    // the effective state, as LinkState.At defines it; "": all
	InvitedFrom *Millis      // inclusive; nil: no bound
	InvitedTo   *Millis      // inclusive; nil: no bound
	Direction   Direction    // of the page, seen from At
	At          LinkPosition // exclusive; zero: see Position
	Limit       int          // links at most, 1 to 100
}

// LinkPage is one page of the list. Its links have their effective state, but no RevokedAt, KeyID
// and TraceID.
type LinkPage = Page[CustomerLink, LinkID]
