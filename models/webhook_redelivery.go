package models

import (
	"context"
	_ "embed" // statements

	"partnerbilling/models/postgres"
)

const (
	// MaxRedelivery is the number of pending events of an organisation at which a redelivery by
	// filter stops.
	MaxRedelivery = 10_000
	// redeliverStep is the maximum number of events in one transaction of a redelivery by filter.
	redeliverStep = 500
)

// RedeliverWebhook starts another round of an event's delivery, whatever its status. The round has
// the same idempotencyKey and bytes, the current endpoint and secret, and the full schedule of
// attempts. RedeliverWebhook returns the event without its body, and its task. If the endpoint is
// missing or disabled, the event becomes undelivered, and the task is zero. ErrNotFound: the
// organisation has no such event.
func (s *Store) RedeliverWebhook(
	ctx context.Context, organisation OrganisationID, id WebhookEventID,
) (event WebhookEvent, task TaskID, err error) {
	actFrom(ctx).about(SubjectWebhookEvent, id.String()).in(organisation, SiteID{})
	err = s.act(ctx, func(tx postgres.Tx) error {
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

// Redelivery is the result of a redelivery by filter.
type Redelivery struct {
	Count int      // of redelivered events, undelivered ones included
	Tasks []TaskID // of the events that an enabled endpoint takes
	// ResumeFrom is CreatedAt of the oldest event that the filter selects and that was left out;
	// zero: there is none. A call with ResumeFrom as the filter's From continues.
	ResumeFrom Millis
}

// RedeliverWebhooks redelivers the events that the filter selects, oldest first, in bounded steps,
// as long as the organisation has fewer than MaxRedelivery pending events. Delivery slots pace the
// attempts. It leaves out tests, and events created after the call began. With an error, the result
// is the part that is done. ErrReason: an operator's act has no reason.
func (s *Store) RedeliverWebhooks(
	ctx context.Context, organisation OrganisationID, filter WebhookFilter,
) (done Redelivery, err error) {
	act := actFrom(ctx).about(SubjectWebhookEvent, "").in(organisation, filter.SiteID)
	filter.describe(act)
	if act.Name == ActRedeliverForPartner {
		if err := act.needsReason(); err != nil {
			return done, err
		}
	}
	now, err := s.Now(ctx)
	if err != nil {
		return done, err
	}
	if filter.To == nil || *filter.To > now {
		filter.To = &now
	}
	var pending int
	args := postgres.Args{"organisation": organisation, "most": s.maxRedelivery}
	err = s.pg.Get(ctx, pendingWebhooksSQL, args, &pending)
	if err != nil {
		return done, wrap("redeliver webhooks", err)
	}
	var at WebhookPosition
	for {
		step := min(redeliverStep, s.maxRedelivery-pending-done.Count)
		if step == 0 {
			done.ResumeFrom, err = s.nextRedelivery(ctx, organisation, filter, at)
			return done, wrap("redeliver webhooks", err)
		}
		n, err := s.redeliverMatching(ctx, organisation, filter, &at, step, &done)
		if err != nil || n < step {
			return done, wrap("redeliver webhooks", err)
		}
	}
}

// redeliverMatching redelivers the next events beyond a position in one transaction, at most limit,
// and returns their number. It moves at to the last of them, and adds them to done.
func (s *Store) redeliverMatching(
	ctx context.Context, organisation OrganisationID, filter WebhookFilter, at *WebhookPosition, limit int,
	done *Redelivery,
) (int, error) {
	var found []WebhookPosition
	var tasks []TaskID
	err := s.act(ctx, func(tx postgres.Tx) (err error) {
		if found, err = matchingWebhooks(ctx, tx, organisation, filter, *at, limit); err != nil {
			return err
		}
		ids := make([]WebhookEventID, len(found))
		for i, p := range found {
			ids[i] = p.Key
		}
		tasks, err = redeliver(ctx, tx, organisation, ids)
		return err
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	*at = found[len(found)-1]
	done.Count, done.Tasks = done.Count+len(found), append(done.Tasks, tasks...)
	return len(found), nil
}

// nextRedelivery returns CreatedAt of the next event beyond a position; zero: there is none.
func (s *Store) nextRedelivery(
	ctx context.Context, organisation OrganisationID, filter WebhookFilter, at WebhookPosition,
) (next Millis, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		found, err := matchingWebhooks(ctx, tx, organisation, filter, at, 1)
		if len(found) > 0 {
			next = found[0].At
		}
		return err
	})
	return next, err
}

// matchingWebhooks returns the positions of the next events beyond a position, oldest first, at
// most limit. It leaves out tests.
func matchingWebhooks(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, filter WebhookFilter, at WebhookPosition,
	limit int,
) (found []WebhookPosition, err error) {
	err = filter.selectFrom(tx, organisation).ColumnExpr("w.created_at AS at, w.id AS key").
		Where("(w.created_at, w.id) > (?, ?) AND NOT w.is_test", at.At, at.Key).
		Order("w.created_at", "w.id").Limit(int64(limit)).Scan(ctx, &found)
	return found, err
}

var (
	//go:embed webhook_redeliver.sql
	redeliverText string
	redeliverSQL  = postgres.SQL(redeliverText)

	pendingWebhooksSQL = postgres.SQL(`
SELECT count(*) FROM (
    SELECT FROM webhook_events WHERE organisation_id = :organisation AND status = 'pending' LIMIT :most) w`)
)

// redeliver starts a new round of the events and returns the tasks of the round. A worker that is
// sending an event keeps its lease. The new round of the event begins after its attempt is
// recorded.
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

// CreateTestWebhook writes a test event for an endpoint (zero Site: the default), and returns its
// id and task. The caller makes the one attempt of the event at once with the task; if the caller
// dies, a worker makes it. Errors: ErrNoWebhookEndpoint; ErrNotFound if the organisation has no
// Site for the event.
func (s *Store) CreateTestWebhook(
	ctx context.Context, organisation OrganisationID, site SiteID, trace TraceID,
) (id WebhookEventID, task TaskID, err error) {
	actFrom(ctx).aboutEndpoint(organisation, site)
	err = s.act(ctx, func(tx postgres.Tx) error {
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
			intent: push.PaymentIntentID, status: push.TransactionStatus, trace: trace, body: body, test: true,
			endpoint: site,
		})
		return err
	})
	return id, task, wrap("create test webhook", err)
}

// testPush returns the notification of a test event: a settled payment of 100 minor units. Its
// payment intent does not exist, and no other event has its key.
func testPush(site SiteID, trace TraceID, now Millis) TransactionStatusPush {
	paid := Amount(100)
	return TransactionStatusPush{
		TransactionUpdated: now, IdempotencyKey: newIDFor[eventNoun](trace), SiteID: PushSite{site},
		PaymentIntentID: NewID[intentNoun](), TransactionID: NewID[transactionNoun](),
		TransactionStatus: "Settled", TransactionStatusDescription: "Test event: no payment was made.", OrderID: "test",
		AmountPaid: &paid,
	}
}
