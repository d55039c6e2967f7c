package models

import (
	"context"
	"database/sql"
	"errors"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// ClaimWebhook claims the due attempt of a task's event, for WebhookLease. If an earlier worker has
// died during its attempt, the claim first logs and counts that attempt, without a known outcome.
// ErrNothingDue: there is no attempt to make now; the event's and task's next steps are recorded.
func (s *Store) ClaimWebhook(
	ctx context.Context, ring *seal.Keyring, task TaskID, lease LeaseToken,
) (WebhookDelivery, error) {
	var delivery WebhookDelivery
	nothing := false
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		c := webhookClaim{tx: tx, task: task, lease: lease}
		err := c.run(ctx, ring)
		if nothing = errors.Is(err, ErrNothingDue); nothing {
			return nil // the recorded steps must be committed
		}
		delivery = c.delivery
		return err
	})
	if err == nil && nothing {
		return WebhookDelivery{}, ErrNothingDue
	}
	return delivery, wrap("claim webhook", err)
}

// webhookClaim is one claim in its transaction.
type webhookClaim struct {
	tx    postgres.Tx
	task  TaskID
	lease LeaseToken

	delivery     WebhookDelivery
	now          Millis
	endpoint     webhookEndpointRow
	interrupted  int  // the number of the previous attempt, if its outcome is unknown; else 0
	released     bool // the event's slot counts already, at slotEndpoint
	slotEndpoint SiteID
}

func (c *webhookClaim) run(ctx context.Context, ring *seal.Keyring) error {
	if err := c.lockEvent(ctx); err != nil {
		return err
	}
	found, err := c.findEndpoint(ctx)
	if err != nil {
		return err
	}
	if err := c.logInterrupted(ctx); err != nil {
		return err
	}
	event := &c.delivery.Event
	if !found || c.endpoint.DisabledAt != 0 && !event.Test {
		return c.giveUp(ctx)
	}
	free, err := c.hasCapacity(ctx)
	if err != nil {
		return err
	}
	if !free {
		return c.park(ctx)
	}
	c.delivery.EndpointSite, c.delivery.URL, c.delivery.StartedAt = c.endpoint.SiteID, c.endpoint.URL, c.now
	c.delivery.Once = event.Test && c.delivery.round == 1
	c.delivery.Fresh = c.endpoint.Failures > 0 || c.delivery.Failures > 0
	if c.delivery.Secrets, err = webhookSecrets(ctx, c.tx, ring, event.OrganisationID); err != nil {
		return err
	}
	return c.take(ctx)
}

// lockEvent reads the event and then its slot, and ends the claim unless the attempt is due.
func (c *webhookClaim) lockEvent(ctx context.Context) error {
	d := &c.delivery
	e := &d.Event
	var mine bool
	var endpoint SiteID
	err := c.tx.Tx.Tx.QueryRowContext(ctx, `
SELECT e.organisation_id, e.id, e.site_id, e.type, e.is_test, e.status, e.attempts, e.failures,
       e.round, e.created_at, e.requested_at, coalesce(e.next_attempt_at, 0), coalesce(e.delivered_at, 0), e.trace_id, e.body,
       e.endpoint_site_id, e.task_id IS NOT DISTINCT FROM o.id, svc_now()
FROM outbox o JOIN webhook_events e ON e.organisation_id = o.organisation_id AND e.id = o.subject_id
WHERE o.id = $1 FOR UPDATE OF e`, c.task).Scan(&e.OrganisationID, &e.ID, &e.SiteID, &e.Type, &e.Test,
		&e.Status, &e.Attempts, &d.Failures, &d.round, &e.CreatedAt, &e.RequestedAt, &e.NextAttemptAt, &e.DeliveredAt, &e.TraceID,
		&e.Body, &endpoint, &mine, &c.now)
	d.Task, d.lease = c.task, c.lease
	c.endpoint.SiteID = endpoint
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return c.leave(ctx, `DELETE FROM outbox WHERE id = $1`)
	case err != nil:
		return err
	case !mine || e.Status != WebhookPending:
		return c.leave(ctx, `DELETE FROM outbox WHERE id = $1`)
	}
	leased, err := c.readSlot(ctx)
	switch {
	case err != nil:
		return err
	case leased:
		return c.leave(ctx, `
UPDATE outbox o SET redispatch_after = p.until FROM webhook_slots p
WHERE o.id = $1 AND o.dispatched_at IS NOT NULL AND p.organisation_id = o.organisation_id AND p.event_id = o.subject_id`)
	case e.NextAttemptAt > c.now:
		return c.leave(ctx, `
UPDATE outbox o SET available_at = e.next_attempt_at, dispatched_at = NULL, redispatch_after = NULL
FROM webhook_events e
WHERE o.id = $1 AND e.organisation_id = o.organisation_id AND e.id = o.subject_id`)
	}
	return nil
}

// readSlot reports whether another worker has leased the event. The event's lock protects the slot
// as well.
func (c *webhookClaim) readSlot(ctx context.Context) (leased bool, err error) {
	e := &c.delivery.Event
	var live bool
	var number int
	err = c.tx.Tx.Tx.QueryRowContext(ctx, `
SELECT coalesce(until > statement_timestamp(), false), coalesce(number, 0), endpoint_site_id FROM webhook_slots
WHERE organisation_id = $1 AND event_id = $2 FOR UPDATE`, e.OrganisationID, e.ID).Scan(&live, &number, &c.slotEndpoint)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	leased, c.released = live && number > 0, live && number == 0
	if !leased {
		c.interrupted = number
	}
	c.delivery.Number = max(e.Attempts, number) + 1
	return leased, err
}

// leave records the task's next step and ends the claim.
func (c *webhookClaim) leave(ctx context.Context, query string) error {
	if _, err := c.tx.Tx.Tx.ExecContext(ctx, query, c.task); err != nil {
		return err
	}
	return ErrNothingDue
}

// findEndpoint reads the current endpoint of the event: a test's own, else the Site's, else the
// default. It keeps an unhealthy endpoint locked, so that no other transaction decides about it
// meanwhile.
func (c *webhookClaim) findEndpoint(ctx context.Context) (bool, error) {
	event := &c.delivery.Event
	own, fallback := event.SiteID, SiteID{}
	if event.Test {
		own, fallback = c.endpoint.SiteID, c.endpoint.SiteID
	}
	read := func(lock string) (row webhookEndpointRow, err error) {
		err = c.tx.Tx.Tx.QueryRowContext(ctx, `
SELECT `+deliveryColumns+` FROM webhook_endpoints w WHERE w.organisation_id = $1 AND w.site_id IN ($2, $3)
ORDER BY w.site_id DESC LIMIT 1 `+lock, event.OrganisationID, own, fallback).Scan(row.deliveryFields()...)
		return row, err
	}
	row, err := read("")
	if err == nil && !row.endpoint().Breaker.healthy() {
		row, err = read("FOR UPDATE")
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	c.endpoint = row
	return err == nil, err
}

// hasCapacity reports whether the endpoint has capacity for one more delivery. Events that were
// parked earlier go first. A test always goes: it shows the partner whether the endpoint works
// again.
func (c *webhookClaim) hasCapacity(ctx context.Context) (bool, error) {
	event := &c.delivery.Event
	if event.Test {
		return true, nil
	}
	var inFlight int
	var queued bool
	err := c.tx.Tx.Tx.QueryRowContext(ctx, `
SELECT (SELECT count(*) FROM webhook_slots w WHERE `+laneTaken+` AND w.event_id <> $4),
       EXISTS (SELECT FROM webhook_slots w WHERE `+laneParked+` AND (w.requested_at, w.event_id) < ($3, $4))
FROM (SELECT $1::uuid AS organisation_id, $2::uuid AS site_id) l`,
		event.OrganisationID, c.endpoint.SiteID, event.RequestedAt, event.ID).Scan(&inFlight, &queued)
	capacity := c.endpoint.endpoint().Breaker.capacity(inFlight, c.now)
	waits := queued && (!c.released || c.slotEndpoint != c.endpoint.SiteID)
	return capacity > 0 && !waits, err
}

func (c *webhookClaim) park(ctx context.Context) error {
	if _, err := parkSlots(ctx, c.tx, []webhookSlot{c.slot()}); err != nil {
		return err
	}
	return ErrNothingDue
}

func (c *webhookClaim) slot() webhookSlot {
	d := &c.delivery
	return webhookSlot{
		lane: webhookLane{d.Event.OrganisationID, c.endpoint.SiteID}, event: &d.Event, task: c.task,
		lease: c.lease, n: d.Number, url: d.URL,
	}
}

// giveUp keeps the event as undelivered, since it has no endpoint.
func (c *webhookClaim) giveUp(ctx context.Context) error {
	event := &c.delivery.Event
	_, err := c.tx.Tx.Tx.ExecContext(ctx, `
WITH slot AS (
    DELETE FROM webhook_slots WHERE organisation_id = $1 AND event_id = $2
)
UPDATE webhook_events SET status = 'undelivered', next_attempt_at = NULL, task_id = NULL
WHERE organisation_id = $1 AND id = $2`, event.OrganisationID, event.ID)
	if err != nil {
		return err
	}
	return c.leave(ctx, `DELETE FROM outbox WHERE id = $1`)
}

// logInterrupted logs the previous attempt if its worker has died, and deletes its slot.
func (c *webhookClaim) logInterrupted(ctx context.Context) error {
	if c.interrupted == 0 {
		return nil
	}
	event := &c.delivery.Event
	_, err := c.tx.Tx.Tx.ExecContext(ctx, `
WITH ended AS (
    DELETE FROM webhook_slots WHERE organisation_id = $1 AND event_id = $2 RETURNING number, endpoint_site_id, url
), counted AS (
    UPDATE webhook_events SET attempts = greatest(attempts, (SELECT number FROM ended)) WHERE organisation_id = $1
      AND id = $2
)
INSERT INTO webhook_attempts (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms, url, error)
SELECT $1, $2, number, endpoint_site_id, $3, 0, url, 'interrupted on our side; its outcome is not known' FROM ended
ON CONFLICT DO NOTHING`, event.OrganisationID, event.ID, event.NextAttemptAt)
	return err
}

// take leases the event and its task.
func (c *webhookClaim) take(ctx context.Context) error {
	if got, err := leaseSlots(ctx, c.tx, []webhookSlot{c.slot()}, true); err != nil || len(got) == 0 {
		return errors.Join(err, errSlotTaken)
	}
	// A task that came twice may find its event parked, with capacity. If this worker dies, the
	// event is due and no longer parked.
	_, err := c.tx.Tx.Tx.ExecContext(ctx, `
UPDATE outbox SET available_at = least(available_at, svc_now()), dispatched_at = coalesce(dispatched_at, statement_timestamp()),
    redispatch_after = statement_timestamp() + $2 * interval '1 ms'
WHERE id = $1`, c.task, WebhookLease.Milliseconds())
	return err
}
