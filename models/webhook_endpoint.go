package models

// WebhookEndpoint is the destination of events of an organisation or of one of its Sites.
type WebhookEndpoint struct {
	OrganisationID OrganisationID
	SiteID         SiteID // zero: the organisation's default
	URL            string
	Events         []WebhookEventType // subscribed types, EventTransactionStatus among them
	CreatedAt      Millis
	UpdatedAt      Millis
	DisabledAt     Millis // after a day of only 410 answers; 0: enabled. The next PUT enables it again
	Breaker        WebhookBreaker
}

// WebhookEndpointState is the health of an endpoint.
type WebhookEndpointState string

// The states of an endpoint.
const (
	WebhookEndpointActive WebhookEndpointState = "active"
	// after consecutive failures: events are parked, and one probe at a time is sent
	WebhookEndpointPaused   WebhookEndpointState = "paused"
	WebhookEndpointDisabled WebhookEndpointState = "disabled" // after a day of only 410 answers
)

// State is the endpoint's health.
func (e *WebhookEndpoint) State() WebhookEndpointState {
	switch {
	case e.DisabledAt != 0:
		return WebhookEndpointDisabled
	case e.Breaker.OpenUntil != 0:
		return WebhookEndpointPaused
	default:
		return WebhookEndpointActive
	}
}
