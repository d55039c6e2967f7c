package models

// LinkState is the state of a customer link. The stored state may be LinkInvited past the expiry;
// the effective state, as At defines it, is then LinkExpired.
type LinkState string

// The states of a link, as on the wire and in Postgres.
const (
	LinkInvited LinkState = "invited" // waiting for the customer, until expiresAt
	LinkLinked  LinkState = "linked"  // the customer signed up: batches may debit the customer
	LinkExpired LinkState = "expired" // final: the sign-up did not complete in time
	LinkRevoked LinkState = "revoked" // final: revoked by the partner or the customer
)

// LinkStates are all states, in the order of a link's life.
var LinkStates = []LinkState{LinkInvited, LinkLinked, LinkExpired, LinkRevoked}

// linkTransitions holds the states that a link may move to from each state.
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

// CanBecome reports whether a link may move from state s to state to.
func (s LinkState) CanBecome(to LinkState) bool { return linkTransitions.allow(s, to) }

// Active reports whether the effective state s is invited or linked. A reference with such a link
// accepts no new invitation.
func (s LinkState) Active() bool { return s == LinkInvited || s == LinkLinked }

// At returns the effective state at the time now of a link with the stored state s: from expiresAt
// on, an invitation is expired.
func (s LinkState) At(expiresAt, now Millis) LinkState {
	if s == LinkInvited && now >= expiresAt {
		return LinkExpired
	}
	return s
}
