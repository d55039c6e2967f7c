package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// errEventExists says that the same value was reported before.
var errEventExists = errors.New("models: the webhook event exists")

// insertWebhookEvent writes the event of a payment intent's final status and the task that delivers
// it, in the transaction of that status. push holds everything except the IdempotencyKey; trace is
// that of the intent's creation. The zero TaskID says that there is no endpoint and the event is
// undelivered. A second event for an intent is an error, which ends the transaction.
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
// that the endpoint subscribes to it (webhook_wanted). errEventExists: it was written before, and
// the transaction can continue.
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

// writeWebhookEvent writes an event and returns its task; zero if there is no endpoint.
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

// InsertWebhookEvent writes an event without a checkout, for tests.
func (s *Store) InsertWebhookEvent(
	ctx context.Context, organisation OrganisationID, trace TraceID, push TransactionStatusPush,
) (WebhookEventID, TaskID, error) {
	return insertWebhookEvent(ctx, s.pg, organisation, trace, push)
}

// ErrNoWebhookEndpoint says that the Site, or for the zero Site the organisation, has no endpoint
// of its own.
var ErrNoWebhookEndpoint = errors.New("models: no webhook endpoint")
