package models

import "time"

// The limits of an invitation's life, counted from service time at its creation.
const (
	MinInvitationLife     = 5 * time.Minute
	MaxInvitationLife     = 30 * 24 * time.Hour
	DefaultInvitationLife = 7 * 24 * time.Hour
)

// Link is one customer link of a Site: the invitation of a customer and what became of it. A reference may have
// many over time, at most one of them active; the newest one speaks for the reference.
type Link struct {
	SiteID            SiteID
	ID                LinkID
	CustomerReference string // the partner's name for the customer, opaque
	State             LinkState
	InvitedAt         Millis // grows with every new link of one reference
	ExpiresAt         Millis // the first millisecond at which the invitation cannot be accepted any more
	LinkedAt          Millis // 0 until sign-up was completed; kept when the link is revoked
	RevokedAt         Millis // 0 unless State is revoked
	KeyID             KeyID  // the service key under which the sign-up token is computed
	TraceID           TraceID
}

// effective is the link as it reads at a time: an invitation past its expiry is expired, whether or not a sweep
// has written that down yet.
func (l Link) effective(now Millis) Link {
	l.State = l.State.At(l.ExpiresAt, now)
	return l
}

// Party is who completed a sign-up, in the customer app's own names. A partner never sees it.
type Party struct {
	CustomerID  string
	AgreementID string
}

// NewInvitation is what a partner asks for.
type NewInvitation struct {
	SiteID            SiteID
	OrganisationID    OrganisationID // whose quota it counts against; zero: none
	CustomerReference string
	ExpiresAt         Millis // 0: DefaultInvitationLife from now
	KeyID             KeyID  // the key of the sign-up token
}

// Signup is a link as the customer's side sees it: who invites, and how things stand.
type Signup struct {
	LinkID           LinkID
	OrganisationName string
	SiteName         string
	State            LinkState // effective
	InvitedAt        Millis
	ExpiresAt        Millis
	LinkedAt         Millis // 0 until sign-up was completed
}
