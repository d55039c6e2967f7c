package models

import "time"

// WebhookStatus is where an event stands.
type WebhookStatus string

// The statuses of an event, as on the wire and in Postgres.
const (
	WebhookPending     WebhookStatus = "pending"     // an attempt is due, under way or planned
	WebhookDelivered   WebhookStatus = "delivered"   // the partner's endpoint answered 2xx
	WebhookFailed      WebhookStatus = "failed"      // every attempt failed, or the endpoint answered 410
	WebhookUndelivered WebhookStatus = "undelivered" // there was no endpoint to send it to
)

// WebhookStatuses are all statuses.
var WebhookStatuses = []WebhookStatus{WebhookPending, WebhookDelivered, WebhookFailed, WebhookUndelivered}

// webhookMoves is the whole truth about an event's life. Every status becomes pending again by a redelivery.
var webhookMoves = map[WebhookStatus][]WebhookStatus{
	WebhookPending:     {WebhookPending, WebhookDelivered, WebhookFailed, WebhookUndelivered},
	WebhookDelivered:   {WebhookPending, WebhookUndelivered},
	WebhookFailed:      {WebhookPending, WebhookUndelivered},
	WebhookUndelivered: {WebhookPending, WebhookUndelivered},
}

// CanBecome reports whether an event may move from s to next.
func (s WebhookStatus) CanBecome(next WebhookStatus) bool {
	for _, to := range webhookMoves[s] {
		if to == next {
			return true
		}
	}
	return false
}

// Valid reports whether s is one of WebhookStatuses.
func (s WebhookStatus) Valid() bool {
	_, ok := webhookMoves[s]
	return ok
}

// WebhookEvent is the notification of one final status, and what became of it.
type WebhookEvent struct {
	ID                WebhookEventID
	OrganisationID    OrganisationID
	SiteID            SiteID
	PaymentIntentID   PaymentIntentID
	TransactionStatus string
	Test              bool // asked for by the partner; no transaction is behind it
	Status            WebhookStatus
	Attempts          int // whose outcome is known, or known to be lost, over all rounds
	CreatedAt         Millis
	RequestedAt       Millis // when its delivery was last asked for: creation, or redelivery
	NextAttemptAt     Millis // 0 unless pending
	DeliveredAt       Millis // when it was last delivered; 0 if never
	TraceID           TraceID
	Body              []byte // the final bytes; nil in lists
}

// WebhookAttempt is one POST of an event.
type WebhookAttempt struct {
	Number       int    // from 1, over all rounds
	EndpointSite SiteID // whose endpoint it was; zero for the organisation's default
	StartedAt    Millis
	Duration     time.Duration
	StatusCode   int // 0: no answer
	URL          string
	Address      string // that was dialled, "ip:port"; "" if it did not come to that
	Error        string // why it failed, for the partner; "" if it did not
	ResponseHead []byte // status line, headers and the beginning of the body, at most WebhookHeadLimit
}

// WebhookHeadLimit is how much of an answer is kept, in bytes.
const WebhookHeadLimit = 2 << 10

// WebhookHistory is how long events that have ended are kept.
const WebhookHistory = 90 * 24 * time.Hour

// NewPaymentIntentID makes a fresh id.
func NewPaymentIntentID() PaymentIntentID { return NewID[intentNoun]() }

// NewWebhookEventID makes a fresh id.
func NewWebhookEventID() WebhookEventID { return NewID[eventNoun]() }
