package models

import "time"

// The limits of an invitation's life, counted from service time at its creation.
const (
	MinInvitationLife     = 5 * time.Minute
	MaxInvitationLife     = 30 * 24 * time.Hour
	DefaultInvitationLife = 7 * 24 * time.Hour
)

// CustomerLink is one customer link of a Site: an invitation and its further life. A reference may
// have many links over time, at most one of them active. The newest link represents the reference.
type CustomerLink struct {
	SiteID            SiteID
	ID                LinkID
	CustomerReference string // the partner's name for the customer, opaque
	State             LinkState
	InvitedAt         Millis // increases with every new link of a reference
	ExpiresAt         Millis // the first millisecond at which the invitation can no longer be accepted
	LinkedAt          Millis // 0 until sign-up completes; kept when the link is revoked
	RevokedAt         Millis // 0 unless State is revoked
	KeyID             KeyID  // the service key that authenticates the sign-up token
	TraceID           TraceID
}

// effective returns the link in its effective state at a time: an invitation past its expiry is
// expired, even before a sweep records it.
func (l CustomerLink) effective(now Millis) CustomerLink {
	l.State = l.State.At(l.ExpiresAt, now)
	return l
}

// NewInvitation is a partner's request for an invitation.
type NewInvitation struct {
	SiteID            SiteID
	OrganisationID    OrganisationID // charged for the quota; zero: none
	CustomerReference string
	ExpiresAt         Millis // 0: DefaultInvitationLife from now
	KeyID             KeyID  // the key of the sign-up token
}

// Signup is a link as the customer sees it: the inviting Site and the link's state.
type Signup struct {
	LinkID LinkID
	Payee
	State     LinkState // effective
	InvitedAt Millis
	ExpiresAt Millis
	LinkedAt  Millis // 0 until sign-up was completed
}
