package models

// CustomerSummary is a customer as partners see it in answers and events.
type CustomerSummary struct {
	CustomerReference string    `json:"customerReference"`
	State             LinkState `json:"state"`
	InvitedAt         Millis    `json:"invitedAt"`
	ExpiresAt         Millis    `json:"expiresAt,omitempty"` // only of invited
	LinkedAt          Millis    `json:"linkedAt,omitempty"`  // only of linked
}

// Summary is the link in its stored state, as partners see it.
func (l *CustomerLink) Summary() CustomerSummary {
	s := CustomerSummary{CustomerReference: l.CustomerReference, State: l.State, InvitedAt: l.InvitedAt}
	switch l.State {
	case LinkInvited:
		s.ExpiresAt = l.ExpiresAt
	case LinkLinked:
		s.LinkedAt = l.LinkedAt
	case LinkExpired, LinkRevoked: // these states have no time of their own
	}
	return s
}
