package models

import "time"

// The life of an invitation: the service time from its creation to its expiry.
const (
	MinInvitationLife     = 5 * time.Minute     // the shortest that a partner may choose
	MaxInvitationLife     = 30 * 24 * time.Hour // the longest that a partner may choose
	DefaultInvitationLife = 7 * 24 * time.Hour  // if the partner chooses none
)

// CustomerLink is the relation of a customer to a Site: an invitation and its further life. A
// customerReference may have many links over time, at most one of them active. The newest link
// stands for the reference.
type CustomerLink struct {
	SiteID            SiteID
	ID                LinkID
	CustomerReference string // the partner's name for the customer, opaque
	State             LinkState
	InvitedAt         Millis  // service time; later than that of every older link of the reference
	ExpiresAt         Millis  // the first millisecond at which the invitation cannot be accepted
	LinkedAt          Millis  // 0 until sign-up completes; kept when the link is revoked
	RevokedAt         Millis  // 0 unless State is revoked
	KeyID             KeyID   // the service key that authenticates the sign-up token
	TraceID           TraceID // of the request that made the invitation
}

// effective returns the link in its effective state at now: an invitation past its expiry is
// expired, even before a sweep records that.
func (l CustomerLink) effective(now Millis) CustomerLink {
	l.State = l.State.At(l.ExpiresAt, now)
	return l
}

// NewInvitation is a partner's request for an invitation.
type NewInvitation struct {
	SiteID            SiteID
	OrganisationID    OrganisationID // its quota of invitations applies; zero: no quota
	CustomerReference string
	ExpiresAt         Millis // 0: DefaultInvitationLife from now
	KeyID             KeyID  // the service key that authenticates the sign-up token
}

// Signup is a customer link as the customer sees it: the inviting Site, which Payee names, and the
// link's state.
type Signup struct {
	LinkID LinkID
	Payee
	State     LinkState // effective, as LinkState.At defines it
	InvitedAt Millis
	ExpiresAt Millis
	LinkedAt  Millis // 0 until sign-up was completed
}
