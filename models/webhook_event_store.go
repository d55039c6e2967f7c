package models

import (
	"context"
	"errors"

	"github.com/uptrace/bun"
)

// insertWebhookEvent writes the one event of a payment intent's final status, in the transaction that makes the status
// final, and the task that delivers it. push carries everything but the IdempotencyKey; trace is that of the request
// that created the intent. The zero TaskID says that there is no endpoint: the event is kept as undelivered. A second
// event for an intent violates a unique index, which ends the transaction.
func insertWebhookEvent(
	ctx context.Context, tx bun.Tx, organisation OrganisationID, trace TraceID, push TransactionStatusPush,
) (TaskID, error) {
	event, err := writeWebhookEvent(ctx, tx.Tx, webhookInsert{organisation: organisation, trace: trace, push: push})
	return event.task, err
}

// webhookInsert is an event to be written.
type webhookInsert struct {
	organisation OrganisationID
	trace        TraceID
	push         TransactionStatusPush
	test         bool
	endpoint     SiteID // of a test: whose endpoint is tested
}

// writtenEvent is what was written.
type writtenEvent struct {
	id   WebhookEventID
	task TaskID // zero: there is no endpoint
}

func writeWebhookEvent(ctx context.Context, db querier, in webhookInsert) (writtenEvent, error) {
	written := writtenEvent{id: NewID[eventNoun](), task: NewID[taskNoun]()}
	in.push.IdempotencyKey = written.id
	body, err := pushBody(&in.push, in.trace)
	if err != nil {
		return writtenEvent{}, err
	}
	var pending bool
	err = db.QueryRowContext(ctx, insertWebhookEventSQL,
		in.organisation, written.id, in.push.SiteID.ID, in.push.PaymentIntentID, in.push.TransactionStatus, in.test,
		written.task, in.endpoint, string(in.trace), body, string(TaskDeliverWebhook), string(QueueWebhooks),
		QueuedLease.Milliseconds()).Scan(&pending)
	if err != nil {
		return writtenEvent{}, wrap("insert webhook event", err)
	}
	if !pending {
		written.task = TaskID{}
	}
	return written, nil
}

// insertWebhookEventSQL writes an event and, if there is an endpoint, the task that delivers it. That of a test is held: it goes out
// only if whoever asked for the test has died.
const insertWebhookEventSQL = `
WITH e AS (
    INSERT INTO webhook_events (organisation_id, id, site_id, payment_intent_id, transaction_status, is_test, status,
        created_at, requested_at, next_attempt_at, task_id, endpoint_site_id, trace_id, body)
    SELECT $1, $2, $3, $4, $5, $6, CASE WHEN e.open THEN 'pending' ELSE 'undelivered' END::webhook_event_status,
           now.ms, now.ms, CASE WHEN e.open THEN now.ms END, CASE WHEN e.open THEN $7::uuid END, $8, $9, $10
    FROM ` + svcNow + ` now (ms), (SELECT $6::boolean OR coalesce((` + webhookOpenSQL + `), false) AS open) e
    RETURNING created_at, status = 'pending' AS pending
), task AS (
    INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at, dispatched_at, redispatch_after)
    SELECT $7, $11, $12, $1, $3, $2, $9, created_at, CASE WHEN $6 THEN clock_timestamp() END,
           CASE WHEN $6 THEN clock_timestamp() + $13::bigint * interval '1 ms' END
    FROM e WHERE pending
)
SELECT pending FROM e`

// webhookOpenSQL is whether the endpoint of organisation $1 for Site $3 takes events: of the override, if there is one,
// else of the default.
const webhookOpenSQL = `
SELECT disabled_at IS NULL FROM webhook_endpoints
WHERE organisation_id = $1 AND site_id IN ($3, '00000000-0000-0000-0000-000000000000') ORDER BY site_id DESC LIMIT 1`

// InsertWebhookEvent writes an event outside of any checkout, for tests.
func (s *Store) InsertWebhookEvent(
	ctx context.Context, organisation OrganisationID, trace TraceID, push TransactionStatusPush,
) (id WebhookEventID, task TaskID, err error) {
	err = s.statement(ctx, func() error {
		written, err := writeWebhookEvent(ctx, s.db.DB, webhookInsert{organisation: organisation, trace: trace, push: push})
		id, task = written.id, written.task
		return err
	})
	return id, task, err
}

// ErrNoWebhookEndpoint says that an organisation has no endpoint of its own at that place.
var ErrNoWebhookEndpoint = errors.New("models: no webhook endpoint")
