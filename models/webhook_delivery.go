package models

import (
	"errors"
	"time"
)

const (
	// WebhookLease is how long a worker leases an event: longer than an attempt and its record can
	// take.
	WebhookLease = 30 * time.Second
	// retryLease is how late a retry may come out of Redis before it counts as lost.
	retryLease = 30 * time.Second
	// parkedFor is the maximum time that an event stays parked before its task becomes due by
	// itself.
	parkedFor = time.Hour
	// slotHeld is how long a released event keeps its slot on its way to a worker.
	slotHeld = 5 * time.Second
)

// ErrNothingDue says that a task has nothing to do now: its event is finished, parked, planned for
// later, or leased by another worker.
var ErrNothingDue = errors.New("models: nothing due")

// WebhookDelivery is one attempt that its worker may make now.
type WebhookDelivery struct {
	Task         TaskID
	Event        WebhookEvent
	Number       int    // of the attempt, from 1, across all rounds
	Failures     int    // failed attempts of this round so far
	EndpointSite SiteID // the endpoint's Site; zero for the organisation's default
	URL          string
	// AfterFailure says that the last attempt at the endpoint, or of the event, failed, so that no
	// cached connection or address may be used.
	AfterFailure bool
	Once         bool           // there is no retry: the first round of a test
	StartedAt    Millis         // service time of the claim
	Secrets      WebhookSecrets // sign the attempt

	lease LeaseToken // of the claim
	round int        // the event's round at the claim
}

// endpoint returns the delivery's endpoint.
func (d *WebhookDelivery) endpoint() endpointKey {
	return endpointKey{d.Event.OrganisationID, d.EndpointSite}
}
