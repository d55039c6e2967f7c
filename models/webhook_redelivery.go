package models

import (
	"context"
	_ "embed" // statements

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
		err = tx.Get(ctx, webhookEventSQL, postgres.Args{"organisation": organisation, "event": id}, &event)
		event.Body = nil
		return notFound(err, "webhook event")
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
	var found []WebhookPosition
	err := filter.selectFrom(tx, organisation).Column("w.created_at", "w.id").
		Where("(w.created_at, w.id) > (?, ?) AND NOT w.is_test", at.CreatedAt, at.ID).
		Order("w.created_at", "w.id").Limit(redeliverStep).Scan(ctx, &found)
	ids := make([]WebhookEventID, len(found))
	for i, p := range found {
		ids[i], at = p.ID, p
	}
	return ids, at, err
}

var (
	//go:embed webhook_redeliver.sql
	redeliverText string
	redeliverSQL  = postgres.SQL(redeliverText)
)

// redeliver starts a new round of the events and returns its tasks. A worker that is sending an
// event keeps its lease; its record goes into the log, and the new round begins after it.
func redeliver(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, ids []WebhookEventID,
) (tasks []TaskID, err error) {
	fresh := make([]TaskID, len(ids))
	for i := range fresh {
		fresh[i] = NewID[taskNoun]()
	}
	err = tx.Select(ctx, redeliverSQL, postgres.Args{
		"organisation": organisation, "events": ids, "tasks": fresh, "kind": string(TaskDeliverWebhook),
		"queue": string(QueueWebhooks),
	}, &tasks)
	return tasks, err
}

var testSubjectSQL = postgres.SQL(`
SELECT EXISTS (SELECT FROM webhook_endpoints WHERE organisation_id = :organisation AND site_id = :site) AS has_endpoint,
       (SELECT id FROM sites WHERE organisation_id = :organisation
          AND (id = :site OR :site = '00000000-0000-0000-0000-000000000000') ORDER BY id LIMIT 1) AS site_id,
       svc_now() AS now`)

// CreateTestWebhook writes a test event for an endpoint (zero Site: the default). The caller makes
// its one attempt at once with the returned task; if the caller dies, a worker makes it. Errors:
// ErrNoWebhookEndpoint; ErrNotFound if the organisation has no Site for the event.
func (s *Store) CreateTestWebhook(
	ctx context.Context, organisation OrganisationID, site SiteID, trace TraceID,
) (id WebhookEventID, task TaskID, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		var subject struct {
			HasEndpoint bool
			SiteID      SiteID
			Now         Millis
		}
		err := tx.Get(ctx, testSubjectSQL, postgres.Args{"organisation": organisation, "site": site}, &subject)
		switch {
		case err != nil:
			return err
		case !subject.HasEndpoint:
			return ErrNoWebhookEndpoint
		case subject.SiteID.IsZero():
			return ErrNotFound
		}
		push := testPush(subject.SiteID, trace, subject.Now)
		id = push.IdempotencyKey
		body, err := push.body(trace, true)
		if err != nil {
			return err
		}
		task, err = writeWebhookEvent(ctx, tx, webhookInsert{
			organisation: organisation, site: subject.SiteID, id: id, event: EventTransactionStatus,
			intent: push.PaymentIntentID, status: push.TransactionStatus, trace: trace, body: body, test: true, endpoint: site,
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
