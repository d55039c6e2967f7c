package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"
	"time"

	"partnerbilling/models/postgres"
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

// WebhookEventTypes lists every type. Every endpoint gets the first type; the others go to
// endpoints that subscribe to them.
var WebhookEventTypes = []WebhookEventType{
	EventTransactionStatus, EventBatchSettled, EventRowCorrected, EventCustomerLinked, EventCustomerRevoked,
	EventCustomerExpired,
}

// WebhookStatus is the state of an event's delivery.
type WebhookStatus string

// The statuses of an event, as on the wire and in Postgres.
const (
	WebhookPending     WebhookStatus = "pending"     // an attempt is due, in progress or planned
	WebhookDelivered   WebhookStatus = "delivered"   // the partner's endpoint answered 2xx
	WebhookFailed      WebhookStatus = "failed"      // every attempt failed, or the endpoint answered 410
	WebhookUndelivered WebhookStatus = "undelivered" // there was no endpoint, or it was disabled
)

// WebhookStatuses lists every status.
var WebhookStatuses = []WebhookStatus{WebhookPending, WebhookDelivered, WebhookFailed, WebhookUndelivered}

// webhookTransitions holds the statuses that an event may have after each status. A redelivery
// makes any event pending again, or undelivered if no enabled endpoint takes it.
var webhookTransitions = transitions[WebhookStatus]{
	WebhookPending:     {WebhookDelivered, WebhookFailed, WebhookUndelivered},
	WebhookDelivered:   {WebhookPending, WebhookUndelivered},
	WebhookFailed:      {WebhookPending, WebhookUndelivered},
	WebhookUndelivered: {WebhookPending},
}

// CanBecome reports whether an event may move from s to another status.
func (s WebhookStatus) CanBecome(to WebhookStatus) bool { return webhookTransitions.allow(s, to) }

// Valid reports whether s is one of WebhookStatuses.
func (s WebhookStatus) Valid() bool {
	_, ok := webhookTransitions[s]
	return ok
}

// WebhookEvent is one notification and its delivery. Each request for delivery, at creation or
// redelivery, begins a round of attempts.
type WebhookEvent struct {
	ID                WebhookEventID
	OrganisationID    OrganisationID
	SiteID            SiteID
	Type              WebhookEventType
	PaymentIntentID   PaymentIntentID // of EventTransactionStatus, else zero
	TransactionStatus string          // of EventTransactionStatus, else ""
	Test              bool            // a test that the partner requested; no payment intent exists
	Status            WebhookStatus
	Attempts          int // attempts that have ended, with a known or lost outcome, across all rounds
	CreatedAt         Millis
	RequestedAt       Millis // when delivery was last requested, by creation or redelivery
	NextAttemptAt     Millis // 0 unless pending
	DeliveredAt       Millis // the last delivery; 0: never
	TraceID           TraceID
	Body              []byte // the bytes that every attempt sends; nil in lists
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

// WebhookHeadLimit is the maximum length of WebhookAttempt.ResponseHead in bytes.
const WebhookHeadLimit = 2 << 10

// NewWebhookEventID returns a new id that no stored event has.
func NewWebhookEventID() WebhookEventID { return NewID[eventNoun]() }

// eventTimeLength is the number of bytes that an event's id shares with its subject's id: their
// time.
const eventTimeLength = 6

// webhookEventIDOf derives the id of the event that reports a value of a subject, such as a final
// status or an outcome. The first 48 bits are the time of the subject's id; the rest of the UUIDv7
// is a hash. If the database has lost the event and the value is reported again, the id is the
// same. Another value has another id.
func webhookEventIDOf[N Noun](subject ID[N], event WebhookEventType, value ...string) WebhookEventID {
	const version, variant = 0x70, 0x80
	hash := digest(append([]string{subject.String(), string(event)}, value...)...)
	id := WebhookEventID(subject)
	copy(id[eventTimeLength:], hash[:])
	id[6] = version | id[6]&0x0f
	id[8] = variant | id[8]&0x3f
	return id
}

// errEventExists says that the event was written before.
var errEventExists = errors.New("models: the webhook event exists")

// insertWebhookEvent writes the event of a payment intent's final status and the task that delivers
// it, in the transaction of that status. push holds everything except the IdempotencyKey; trace is
// the trace id of the intent's creation. The zero TaskID says that no enabled endpoint takes the
// event, and that the event is undelivered. A second event for an intent is an error, which ends
// the transaction.
func insertWebhookEvent(
	ctx context.Context, on postgres.Session, organisation OrganisationID, trace TraceID, push TransactionStatusPush,
) (WebhookEventID, TaskID, error) {
	push.IdempotencyKey = push.id()
	body, err := push.body(trace, false)
	if err != nil {
		return WebhookEventID{}, TaskID{}, err
	}
	task, err := writeWebhookEvent(ctx, on, webhookInsert{
		organisation: organisation, site: push.SiteID.ID, id: push.IdempotencyKey, event: EventTransactionStatus,
		intent: push.PaymentIntentID, status: push.TransactionStatus, trace: trace, body: body,
	})
	return push.IdempotencyKey, task, err
}

// insertNotice writes the event of a notice and the task that delivers it. The caller has checked
// that the endpoint subscribes to the event, with the SQL function webhook_wanted. errEventExists:
// the event was written before, and the transaction can continue.
func insertNotice(ctx context.Context, tx postgres.Tx, organisation OrganisationID, n notice) (TaskID, error) {
	body, err := n.body()
	if err != nil {
		return TaskID{}, err
	}
	return writeWebhookEvent(ctx, tx, webhookInsert{
		organisation: organisation, site: n.site, id: n.id, event: n.event, trace: n.trace, body: body,
	})
}

// webhookInsert is an event to insert.
type webhookInsert struct {
	organisation OrganisationID
	site         SiteID
	id           WebhookEventID
	event        WebhookEventType
	intent       PaymentIntentID // of EventTransactionStatus
	status       string          // of EventTransactionStatus
	trace        TraceID
	body         []byte
	test         bool
	endpoint     SiteID // of a test: the tested endpoint's Site
}

var (
	//go:embed webhook_event_insert.sql
	insertWebhookEventText string
	insertWebhookEventSQL  = postgres.SQL(insertWebhookEventText)
)

// writeWebhookEvent writes an event and returns its task; zero if no enabled endpoint takes it.
// errEventExists: the event was written before.
func writeWebhookEvent(ctx context.Context, on postgres.Session, in webhookInsert) (TaskID, error) {
	task := NewID[taskNoun]()
	var pending bool
	err := on.Get(ctx, insertWebhookEventSQL, postgres.Args{
		"organisation": in.organisation, "event": in.id, "site": in.site, "type": string(in.event),
		"trace": string(in.trace), "body": in.body, "intent": in.intent, "transaction_status": in.status,
		"test": in.test, "endpoint_site": in.endpoint, "task": task, "kind": string(TaskDeliverWebhook),
		"queue": string(QueueWebhooks), "queued_lease": QueuedLease.Milliseconds(),
	}, &pending)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return TaskID{}, fmt.Errorf("%w: %s", errEventExists, in.id)
	case err != nil:
		return TaskID{}, wrap("insert webhook event", err)
	case !pending:
		return TaskID{}, nil
	}
	return task, nil
}

// InsertWebhookEvent writes the event of a final status without a payment intent, for tests and the
// load generator. It returns the event's id and task; the task is zero if the event is undelivered.
func (s *Store) InsertWebhookEvent(
	ctx context.Context, organisation OrganisationID, trace TraceID, push TransactionStatusPush,
) (WebhookEventID, TaskID, error) {
	return insertWebhookEvent(ctx, s.pg, organisation, trace, push)
}

// ErrNoWebhookEndpoint says that the Site, or for the zero Site the organisation, has no endpoint
// of its own.
var ErrNoWebhookEndpoint = errors.New("models: no webhook endpoint")

// ParseWebhookEventID reads an event's idempotencyKey; ErrInvalidID if it is none.
func ParseWebhookEventID(text string) (WebhookEventID, error) { return ParseID[eventNoun](text) }
