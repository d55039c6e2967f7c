package models

// WebhookEndpoint is where the events of an organisation, or of one of its Sites, go.
type WebhookEndpoint struct {
	OrganisationID OrganisationID
	SiteID         SiteID // zero: the organisation's default
	URL            string
	Events         []WebhookEventType // that it asks for, EventTransactionStatus among them
	CreatedAt      Millis
	UpdatedAt      Millis
	DisabledAt     Millis // after a day of nothing but 410; 0: it is not. Its next PUT enables it again
	Breaker        WebhookBreaker
}

// WebhookEndpointState is how an endpoint fares.
type WebhookEndpointState string

// The states of an endpoint.
const (
	WebhookEndpointActive   WebhookEndpointState = "active"
	WebhookEndpointPaused   WebhookEndpointState = "paused"   // after failures in a row: events wait, and are tried one at a time
	WebhookEndpointDisabled WebhookEndpointState = "disabled" // after a day of nothing but 410
)

// State is how the endpoint fares.
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
