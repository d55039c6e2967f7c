package models

// LinkState is the state of a customer link.
type LinkState string

// The states of a link, as on the wire and in Postgres.
const (
	LinkInvited LinkState = "invited" // waiting for the customer, until expiresAt
	LinkLinked  LinkState = "linked"  // signed up: batches may debit the customer
	LinkExpired LinkState = "expired" // final: the sign-up did not complete in time
	LinkRevoked LinkState = "revoked" // final: revoked by the partner or the customer
)

// LinkStates are all states, in the order of a link's life.
var LinkStates = []LinkState{LinkInvited, LinkLinked, LinkExpired, LinkRevoked}

var linkTransitions = transitions[LinkState]{
	LinkInvited: {LinkLinked, LinkExpired, LinkRevoked},
	LinkLinked:  {LinkRevoked},
	LinkExpired: {},
	LinkRevoked: {},
}

// Valid reports whether s is one of LinkStates.
func (s LinkState) Valid() bool {
	_, ok := linkTransitions[s]
	return ok
}

// CanBecome reports whether a link may move from s to another state.
func (s LinkState) CanBecome(to LinkState) bool { return linkTransitions.allow(s, to) }

// Active reports whether a link in this effective state makes its reference unavailable for new
// invitations.
func (s LinkState) Active() bool { return s == LinkInvited || s == LinkLinked }

// At returns the effective state at a time: an invitation is expired from the millisecond of its
// expiry.
func (s LinkState) At(expiresAt, now Millis) LinkState {
	if s == LinkInvited && now >= expiresAt {
		return LinkExpired
	}
	return s
}
