package models

// CustomerSummary is a customer link as partners see it in answers and events.
type CustomerSummary struct {
	CustomerReference string    `json:"customerReference"`
	State             LinkState `json:"state"`
	InvitedAt         Millis    `json:"invitedAt"`           // service time
	ExpiresAt         Millis    `json:"expiresAt,omitempty"` // only while invited
	LinkedAt          Millis    `json:"linkedAt,omitempty"`  // only while linked
}

// Summary returns the link as partners see it. It takes State for the effective state; see
// LinkState.At.
func (l *CustomerLink) Summary() CustomerSummary {
	s := CustomerSummary{CustomerReference: l.CustomerReference, State: l.State, InvitedAt: l.InvitedAt}
	switch l.State {
	case LinkInvited:
		s.ExpiresAt = l.ExpiresAt
	case LinkLinked:
		s.LinkedAt = l.LinkedAt
	case LinkExpired, LinkRevoked: // partners see no time of these states
	}
	return s
}
