package models

import (
	"slices"
	"time"
)

// WebhookEventType is the type of an event.
type WebhookEventType string

// The types of events, as on the wire and in Postgres.
const (
	EventTransactionStatus WebhookEventType = "transactionStatus" // a payment intent has its final status
	EventBatchSettled      WebhookEventType = "batchSettled"      // every row of a batch is settled
	EventRowCorrected      WebhookEventType = "rowCorrected"      // the truth about a settled row was learnt late
	EventCustomerLinked    WebhookEventType = "customerLinked"    // a customer has signed up
	EventCustomerRevoked   WebhookEventType = "customerRevoked"   // an invitation or a link was revoked
	EventCustomerExpired   WebhookEventType = "customerExpired"   // an invitation has expired
)

// WebhookEventTypes are all types. Every endpoint gets the first; the others go to subscribed
// endpoints.
var WebhookEventTypes = []WebhookEventType{
	EventTransactionStatus, EventBatchSettled, EventRowCorrected, EventCustomerLinked, EventCustomerRevoked, EventCustomerExpired,
}

// Valid reports whether t is one of WebhookEventTypes.
func (t WebhookEventType) Valid() bool { return slices.Contains(WebhookEventTypes, t) }

// WebhookStatus is the state of an event's delivery.
type WebhookStatus string

// The statuses of an event, as on the wire and in Postgres.
const (
	WebhookPending     WebhookStatus = "pending"     // an attempt is due, in progress or planned
	WebhookDelivered   WebhookStatus = "delivered"   // the partner's endpoint answered 2xx
	WebhookFailed      WebhookStatus = "failed"      // every attempt failed, or the endpoint answered 410
	WebhookUndelivered WebhookStatus = "undelivered" // no endpoint was configured
)

// WebhookStatuses are all statuses.
var WebhookStatuses = []WebhookStatus{WebhookPending, WebhookDelivered, WebhookFailed, WebhookUndelivered}

// webhookMoves are the allowed transitions of an event. A redelivery makes any status pending
// again.
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

// WebhookEvent is one notification and its delivery.
type WebhookEvent struct {
	ID                WebhookEventID
	OrganisationID    OrganisationID
	SiteID            SiteID
	Type              WebhookEventType
	PaymentIntentID   PaymentIntentID // of EventTransactionStatus, else zero
	TransactionStatus string          // of EventTransactionStatus, else ""
	Test              bool            // requested by the partner; it has no transaction
	Status            WebhookStatus
	Attempts          int // attempts with a known or lost outcome, across all rounds
	CreatedAt         Millis
	RequestedAt       Millis // when delivery was last requested: at creation or redelivery
	NextAttemptAt     Millis // 0 unless pending
	DeliveredAt       Millis // the last delivery; 0: never
	TraceID           TraceID
	Body              []byte // the final bytes; nil in lists
}

// WebhookAttempt is one POST of an event.
type WebhookAttempt struct {
	Number       int    // from 1, across all rounds
	EndpointSite SiteID // the endpoint's Site; zero for the organisation's default
	StartedAt    Millis
	Duration     time.Duration
	StatusCode   int // 0: no answer
	URL          string
	Address      string // the dialled "ip:port"; "" if none was dialled
	Error        string // the failure, worded for the partner; "" for a success
	ResponseHead []byte // status line, headers and the beginning of the body, at most WebhookHeadLimit
}

// WebhookHeadLimit is the maximum number of bytes kept of an answer.
const WebhookHeadLimit = 2 << 10

// WebhookHistory is how long ended events are kept.
const WebhookHistory = 90 * 24 * time.Hour

// NewPaymentIntentID returns a new id.
func NewPaymentIntentID() PaymentIntentID { return NewID[intentNoun]() }

// NewWebhookEventID returns a new id that no stored event has.
func NewWebhookEventID() WebhookEventID { return NewID[eventNoun]() }

// eventTimeLength is the number of bytes that an event's id shares with its subject's id: their
// time.
const eventTimeLength = 6

// webhookEventIDOf derives the id of the event in which a subject reports a value: a final status
// or an outcome. The first 48 bits are the time of the subject's id; the rest of the UUIDv7 is a
// hash. The same value reported again after a loss has the same id, and another value another id.
func webhookEventIDOf[N Noun](subject ID[N], event WebhookEventType, value ...string) WebhookEventID {
	const version, variant = 0x70, 0x80
	hash := digest(append([]string{subject.String(), string(event)}, value...)...)
	id := WebhookEventID(subject)
	copy(id[eventTimeLength:], hash[:])
	id[6] = version | id[6]&0x0f
	id[8] = variant | id[8]&0x3f
	return id
}
