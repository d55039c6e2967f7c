package models

import (
	"errors"
	"time"
)

const (
	// WebhookLease is how long a worker owns an event: more than an attempt and its record can take.
	WebhookLease = 30 * time.Second
	// retryLease is how long after its time a retry may come out of Redis before it is taken for lost.
	retryLease = 30 * time.Second
	// parkedFor is how long an event waits for its endpoint at the most before it asks by itself.
	parkedFor = time.Hour
	// slotHeld is how long an event that was let go keeps its place on its way to a worker.
	slotHeld = `interval '5 s'`
)

// ErrNothingDue says that a task has nothing to do now: its event is finished, parked, planned for later, or another
// worker has it.
var ErrNothingDue = errors.New("models: nothing due")

// errSlotTaken cannot be: whoever takes a place has its event locked.
var errSlotTaken = errors.New("models: another worker has the event")

// WebhookDelivery is one attempt that its worker may make now.
type WebhookDelivery struct {
	Task         TaskID
	Event        WebhookEvent
	Number       int    // of the attempt, from 1, over all rounds
	Failures     int    // of this round so far
	EndpointSite SiteID // whose endpoint; zero for the organisation's default
	URL          string
	// Fresh says that the endpoint failed the last time, so that nothing that is known of it (a connection, where its name
	// led) may be used again.
	Fresh     bool
	Once      bool // there is no retry: the first round of a test
	StartedAt Millis
	Secrets   WebhookSecrets

	lease LeaseToken
	round int
}

// WebhookVerdict is what an attempt means for its event.
type WebhookVerdict struct {
	Status WebhookStatus // delivered, failed, or pending for another attempt
	Gone   bool          // the answer was 410
	Retry  time.Duration // until the next attempt, if pending
	Anew   bool          // the task goes out anew for that, since nobody in Redis repeats it any more
}
