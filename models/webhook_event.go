package models

import (
	"slices"
	"time"
)

// WebhookEventType is what an event tells of.
type WebhookEventType string

// The types of events, as on the wire and in Postgres.
const (
	EventTransactionStatus WebhookEventType = "transactionStatus" // a payment intent has its final status
	EventBatchSettled      WebhookEventType = "batchSettled"      // every row of a batch is settled
	EventRowCorrected      WebhookEventType = "rowCorrected"      // the truth about a settled row came late
	EventCustomerLinked    WebhookEventType = "customerLinked"    // a customer has signed up
	EventCustomerRevoked   WebhookEventType = "customerRevoked"   // an invitation or a link was called off
	EventCustomerExpired   WebhookEventType = "customerExpired"   // an invitation has expired
)

// WebhookEventTypes are all types. Every endpoint gets the first; the others go to endpoints that ask for them.
var WebhookEventTypes = []WebhookEventType{
	EventTransactionStatus, EventBatchSettled, EventRowCorrected, EventCustomerLinked, EventCustomerRevoked, EventCustomerExpired,
}

// Valid reports whether t is one of WebhookEventTypes.
func (t WebhookEventType) Valid() bool { return slices.Contains(WebhookEventTypes, t) }

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

// WebhookEvent is one notification, and what became of it.
type WebhookEvent struct {
	ID                WebhookEventID
	OrganisationID    OrganisationID
	SiteID            SiteID
	Type              WebhookEventType
	PaymentIntentID   PaymentIntentID // of EventTransactionStatus, else zero
	TransactionStatus string          // of EventTransactionStatus, else ""
	Test              bool            // asked for by the partner; no transaction is behind it
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

// NewWebhookEventID makes a fresh id, which no stored event has.
func NewWebhookEventID() WebhookEventID { return NewID[eventNoun]() }

// eventTimeLength is the number of bytes that the id of an event shares with the id of its subject: their time.
const eventTimeLength = 6

// webhookEventIDOf derives the id of the event by which a subject reports a value: a final status, an outcome. Its time
// part, the first 48 bits, is that of the subject's id; the rest of the UUIDv7 is a hash. What is reported again after a
// loss has the same id, and another value another.
func webhookEventIDOf[N Noun](subject ID[N], event WebhookEventType, value ...string) WebhookEventID {
	const version, variant = 0x70, 0x80
	hash := digest(append([]string{subject.String(), string(event)}, value...)...)
	id := WebhookEventID(subject)
	copy(id[eventTimeLength:], hash[:])
	id[6] = version | id[6]&0x0f
	id[8] = variant | id[8]&0x3f
	return id
}
