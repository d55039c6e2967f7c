package models

import (
	"context"
	"database/sql"
	"errors"

	"partnerbilling/models/postgres"
)

// redeliverStep is the maximum number of events in one transaction of a bulk redelivery.
const redeliverStep = 500

// RedeliverWebhook starts another round of an event's delivery, in any status: same key, same
// bytes, the current endpoint and secret, and the full schedule of attempts. Without an endpoint
// the event becomes undelivered. It returns the event and its task; the task is zero without an
// endpoint. ErrNotFound: the organisation has no such event.
func (s *Store) RedeliverWebhook(
	ctx context.Context, organisation OrganisationID, id WebhookEventID,
) (event WebhookEvent, task TaskID, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		tasks, err := redeliver(ctx, tx, organisation, []WebhookEventID{id})
		if err != nil {
			return err
		}
		task = TaskID{}
		if len(tasks) > 0 {
			task = tasks[0]
		}
		event = WebhookEvent{}
		err = tx.Tx.Tx.QueryRowContext(ctx, `SELECT `+webhookColumns+` FROM webhook_events w
WHERE w.organisation_id = $1 AND w.id = $2`, organisation, id).Scan(event.columns()...)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return event, task, wrap("redeliver webhook", err)
}

// RedeliverWebhooks redelivers every event that the filter selects, oldest first, in bounded steps.
// It leaves out tests, and events created after the call began. It returns the number of events and
// their tasks, also for the part done before an error.
func (s *Store) RedeliverWebhooks(
	ctx context.Context, organisation OrganisationID, filter WebhookFilter,
) (count int, tasks []TaskID, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, nil, err
	}
	if filter.To == nil || *filter.To > now {
		filter.To = &now
	}
	var at WebhookPosition
	for {
		var ids []WebhookEventID
		var made []TaskID
		next := at
		err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
			if ids, next, err = matchingWebhooks(ctx, tx, organisation, filter, at); err != nil {
				return err
			}
			made, err = redeliver(ctx, tx, organisation, ids)
			return err
		})
		if err != nil {
			return count, tasks, wrap("redeliver webhooks", err)
		}
		at, count, tasks = next, count+len(ids), append(tasks, made...)
		if len(ids) < redeliverStep {
			return count, tasks, nil
		}
	}
}

// matchingWebhooks returns the next events beyond a position, and the position of the last.
func matchingWebhooks(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, filter WebhookFilter, at WebhookPosition,
) ([]WebhookEventID, WebhookPosition, error) {
	where, args := filter.where([]any{organisation, at.CreatedAt, at.ID, redeliverStep})
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
SELECT w.created_at, w.id FROM webhook_events w
WHERE w.organisation_id = $1 AND (w.created_at, w.id) > ($2, $3) AND NOT w.is_test`+where+`
ORDER BY w.created_at, w.id LIMIT $4`, args...)
	if err != nil {
		return nil, at, err
	}
	found, err := scanAll(rows, func(p *WebhookPosition) []any { return []any{&p.CreatedAt, &p.ID} })
	ids := make([]WebhookEventID, len(found))
	for i, p := range found {
		ids[i], at = p.ID, p
	}
	return ids, at, err
}

// redeliver starts a new round of the events and returns its tasks. A worker that is sending an
// event keeps its lease; its record goes into the log, and the new round begins after it.
func redeliver(ctx context.Context, tx postgres.Tx, organisation OrganisationID, ids []WebhookEventID) ([]TaskID, error) {
	fresh := make([]TaskID, len(ids))
	for i := range fresh {
		fresh[i] = NewID[taskNoun]()
	}
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
WITH asked AS MATERIALIZED (
    SELECT w.organisation_id, w.id, w.site_id, w.trace_id, w.task_id AS old_task, a.task, svc_now() AS now,
           (SELECT p.ctid FROM webhook_slots p WHERE p.organisation_id = w.organisation_id AND p.event_id = w.id) AS slot,
           coalesce((SELECT e.disabled_at IS NULL FROM webhook_endpoints e
                     WHERE e.organisation_id = w.organisation_id
                       AND e.site_id IN (CASE WHEN w.is_test THEN w.endpoint_site_id ELSE w.site_id END,
                                         CASE WHEN w.is_test THEN w.endpoint_site_id ELSE '00000000-0000-0000-0000-000000000000' END)
                     ORDER BY e.site_id DESC LIMIT 1), false) AS open
    FROM unnest($2::uuid[], $3::uuid[]) AS a (id, task)
    JOIN webhook_events w ON w.organisation_id = $1 AND w.id = a.id
    ORDER BY w.id FOR UPDATE OF w
), e AS (
    UPDATE webhook_events w SET round = w.round + 1, failures = 0, requested_at = a.now, requested_in = pg_current_xact_id(),
        status = CASE WHEN a.open THEN 'pending' ELSE 'undelivered' END::webhook_event_status,
        next_attempt_at = CASE WHEN a.open THEN a.now END, task_id = CASE WHEN a.open THEN a.task END
    FROM asked a WHERE w.organisation_id = a.organisation_id AND w.id = a.id
), slots AS (
    DELETE FROM webhook_slots p USING asked a WHERE p.ctid = a.slot AND p.token IS NULL RETURNING p.event_id
), gone AS (
    DELETE FROM outbox o USING asked a WHERE o.id = a.old_task AND (SELECT count(*) FROM slots) >= 0 -- slots first, as everywhere
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
SELECT a.task, $4, $5, a.organisation_id, a.site_id, a.id, a.trace_id, a.now FROM asked a WHERE a.open
RETURNING id`, organisation, ids, fresh, string(TaskDeliverWebhook), string(QueueWebhooks))
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(id *TaskID) []any { return []any{id} })
}

// CreateTestWebhook writes a test event for an endpoint (zero Site: the default). The caller makes
// its one attempt at once with the returned task; if the caller dies, a worker makes it. Errors:
// ErrNoWebhookEndpoint; ErrNotFound if the organisation has no Site for the event.
func (s *Store) CreateTestWebhook(
	ctx context.Context, organisation OrganisationID, site SiteID, trace TraceID,
) (id WebhookEventID, task TaskID, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var exists bool
		var of SiteID
		var now Millis
		err := tx.Tx.Tx.QueryRowContext(ctx, `
SELECT EXISTS (SELECT FROM webhook_endpoints WHERE organisation_id = $1 AND site_id = $2),
       (SELECT id FROM sites WHERE organisation_id = $1 AND (id = $2 OR $2 = '00000000-0000-0000-0000-000000000000')
        ORDER BY id LIMIT 1), svc_now()`, organisation, site).Scan(&exists, &of, &now)
		switch {
		case err != nil:
			return err
		case !exists:
			return ErrNoWebhookEndpoint
		case of.IsZero():
			return ErrNotFound
		}
		push := testPush(of, trace, now)
		id = push.IdempotencyKey
		body, err := push.body(trace, true)
		if err != nil {
			return err
		}
		task, err = writeWebhookEvent(ctx, tx.Tx.Tx, webhookInsert{
			organisation: organisation, site: of, id: id, event: EventTransactionStatus, intent: push.PaymentIntentID,
			status: push.TransactionStatus, trace: trace, body: body, test: true, endpoint: site,
		})
		return err
	})
	return id, task, wrap("create test webhook", err)
}

// testPush is the notification of a test event. No payment intent has its id, and no other event
// its key.
func testPush(site SiteID, trace TraceID, now Millis) TransactionStatusPush {
	paid := Amount(100)
	return TransactionStatusPush{
		TransactionUpdated: now,
		IdempotencyKey:     newIDFor[eventNoun](trace), SiteID: PushSite{site}, PaymentIntentID: NewID[intentNoun](), TransactionID: NewID[transactionNoun](),
		TransactionStatus: "Settled", TransactionStatusDescription: "Test event: no payment was made.", OrderID: "test",
		AmountPaid: &paid,
	}
}
