package models

import (
	"context"
	"database/sql"
	"errors"

	"partnerbilling/models/postgres"
)

// RecordWebhook records an attempt and its consequences for the event, the endpoint and the task. A
// worker with an expired lease still logs its attempt, and its success still counts; otherwise the
// event stays with its current worker, or with the redelivery requested meanwhile. RecordWebhook
// returns tasks that the endpoint has capacity for and that may be dispatched.
func (s *Store) RecordWebhook(
	ctx context.Context, d WebhookDelivery, attempt WebhookAttempt, verdict WebhookVerdict,
) (released []TaskID, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		r := webhookRecord{tx: tx, d: &d, attempt: attempt, verdict: verdict}
		for _, step := range []func(context.Context) error{r.writeEvent, r.writeAttempt, r.writeBreaker, r.writeTask, r.writeAlert} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		tasks, err := releaseSlots(ctx, tx, []webhookLane{d.lane()})
		released = nil
		for _, t := range tasks {
			released = append(released, t.id)
		}
		return err
	})
	return released, wrap("record webhook", err)
}

// webhookRecord is one record in its transaction.
type webhookRecord struct {
	tx      postgres.Tx
	d       *WebhookDelivery
	attempt WebhookAttempt
	verdict WebhookVerdict

	decided  bool   // the verdict became the event's status
	newTask  TaskID // of a redelivery requested meanwhile, else zero
	reported bool   // an alert about the event may be open
}

// writeEvent releases the event's slot and, unless the event has moved on, sets its status from the
// verdict.
func (r *webhookRecord) writeEvent(ctx context.Context) error {
	err := r.tx.Tx.Tx.QueryRowContext(ctx, `
WITH locked AS MATERIALIZED (
    SELECT organisation_id, id, status = 'pending' AND round = $4 AS open FROM webhook_events
    WHERE organisation_id = $1 AND id = $2 FOR UPDATE
), ended AS (
    DELETE FROM webhook_slots
    WHERE organisation_id = $1 AND event_id = $2 AND (token = $3 OR (SELECT open FROM locked) AND $5 = 'delivered')
    RETURNING number
), e AS (
    SELECT *, open AND ($5 = 'delivered' OR EXISTS (SELECT FROM ended)) AS decides, svc_now() AS now FROM locked
)
UPDATE webhook_events w SET
    status = CASE WHEN e.decides THEN $5::webhook_event_status ELSE w.status END,
    attempts = greatest(w.attempts, $7, (SELECT number FROM ended)), -- includes the attempt of a successor
    failures = w.failures + CASE WHEN e.decides AND $5 <> 'delivered' THEN 1 ELSE 0 END,
    delivered_at = CASE WHEN $5 = 'delivered' THEN e.now ELSE w.delivered_at END,
    next_attempt_at = CASE WHEN NOT e.decides THEN w.next_attempt_at WHEN $5 = 'pending' THEN e.now + $6::bigint END,
    task_id = CASE WHEN e.decides AND $5 <> 'pending' THEN NULL ELSE w.task_id END
FROM e WHERE w.organisation_id = e.organisation_id AND w.id = e.id
RETURNING e.decides, CASE WHEN w.round <> $4 THEN w.task_id END, w.round > 1`,
		r.d.Event.OrganisationID, r.d.Event.ID, r.d.lease, r.d.round, string(r.verdict.Status), r.verdict.Retry.Milliseconds(),
		r.d.Number,
	).Scan(&r.decided, &r.newTask, &r.reported)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // dropped by retention
	}
	return err
}

func (r *webhookRecord) writeAttempt(ctx context.Context) error {
	a := r.attempt
	_, err := r.tx.Tx.Tx.ExecContext(ctx, `
INSERT INTO webhook_attempts AS a (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms, status_code, url,
    address, error, response_head)
SELECT $1, $2, $3, $4, $5, $6, nullif($7, 0), $8, $9, $10, $11
WHERE EXISTS (SELECT FROM webhook_events WHERE organisation_id = $1 AND id = $2)
ON CONFLICT (organisation_id, event_id, number) DO UPDATE
SET started_at = excluded.started_at, duration_ms = excluded.duration_ms,
    status_code = excluded.status_code, address = excluded.address, error = excluded.error, response_head = excluded.response_head
WHERE a.status_code IS NULL OR a.status_code NOT BETWEEN 200 AND 299 -- a success stays`,
		r.d.Event.OrganisationID, r.d.Event.ID, r.d.Number, r.d.EndpointSite, r.d.StartedAt, a.Duration.Milliseconds(), a.StatusCode,
		r.d.URL, a.Address, a.Error, orEmpty(a.ResponseHead))
	return err
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// writeBreaker updates the endpoint's breaker. A success at a healthy endpoint writes nothing. An
// attempt at an earlier URL of the endpoint does not count.
func (r *webhookRecord) writeBreaker(ctx context.Context) error {
	organisation, success := r.d.Event.OrganisationID, r.verdict.Status == WebhookDelivered
	read := func(lock string) (row webhookEndpointRow, now Millis, err error) {
		err = r.tx.Tx.Tx.QueryRowContext(ctx, `
SELECT `+deliveryColumns+`, svc_now() FROM webhook_endpoints w WHERE w.organisation_id = $1 AND w.site_id = $2 AND w.url = $3 `+lock,
			organisation, r.d.EndpointSite, r.d.URL).Scan(append(row.deliveryFields(), &now)...)
		return row, now, err
	}
	lock := ""
	if !success {
		lock = "FOR UPDATE"
	}
	row, now, err := read(lock)
	if err == nil && success && !row.endpoint().Breaker.healthy() {
		row, now, err = read("FOR UPDATE")
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case success && row.endpoint().Breaker.healthy():
		return nil
	}
	breaker := row.endpoint().Breaker.after(success, r.verdict.Gone, now)
	disables := row.DisabledAt == 0 && breaker.isGone(now)
	if disables {
		row.DisabledAt = now
	}
	_, err = r.tx.Tx.Tx.ExecContext(ctx, `
UPDATE webhook_endpoints SET failures = $3, open_until = nullif($4::bigint, 0), openings = $5, width = $6,
    gone_since = nullif($7::bigint, 0), disabled_at = nullif($8::bigint, 0)
WHERE organisation_id = $1 AND site_id = $2`, row.OrganisationID, row.SiteID, breaker.Failures, int64(breaker.OpenUntil), breaker.Openings,
		breaker.Width, int64(breaker.GoneSince), int64(row.DisabledAt))
	if err != nil || !disables {
		return err
	}
	return r.disable(ctx, row)
}

// disable alerts the operator, and makes parked events due, so that their claims end them.
func (r *webhookRecord) disable(ctx context.Context, row webhookEndpointRow) error {
	err := raiseAlert(ctx, r.tx, alert{
		kind: alertEndpointDisabled, subject: endpointName(row.OrganisationID, row.SiteID),
		detail:       "nothing but 410 for " + WebhookGoneFor.String(),
		organisation: row.OrganisationID, site: row.SiteID, trace: r.d.Event.TraceID,
	})
	if err != nil {
		return err
	}
	return reviveWaiting(ctx, r.tx, row.OrganisationID, row.SiteID)
}

// writeTask postpones the task until the next attempt, or ends it. A postponed task stays with
// Redis unless the verdict dispatches it again.
func (r *webhookRecord) writeTask(ctx context.Context) (err error) {
	switch {
	case !r.newTask.IsZero():
		_, err = r.tx.Tx.Tx.ExecContext(ctx, `
UPDATE outbox SET available_at = svc_now(), dispatched_at = NULL, redispatch_after = NULL WHERE id = $1`, r.newTask)
	case r.decided && r.verdict.Status == WebhookPending:
		_, err = r.tx.Tx.Tx.ExecContext(ctx, `
UPDATE outbox SET available_at = svc_now() + $2, dispatched_at = CASE WHEN NOT $4 THEN dispatched_at END,
    redispatch_after = CASE WHEN NOT $4 AND dispatched_at IS NOT NULL
        THEN statement_timestamp() + ($2 + $3) * interval '1 ms' END
WHERE id = $1`, r.d.Task, r.verdict.Retry.Milliseconds(), retryLease.Milliseconds(), r.verdict.Anew)
	case r.decided:
		_, err = r.tx.Tx.Tx.ExecContext(ctx, `DELETE FROM outbox WHERE id = $1`, r.d.Task)
	}
	return err
}

// writeAlert raises an alert when an event has finally failed, and closes it when a redelivery
// succeeds.
func (r *webhookRecord) writeAlert(ctx context.Context) error {
	event := &r.d.Event
	switch {
	case r.decided && r.verdict.Status == WebhookFailed && !event.Test:
		detail := "no answer"
		if r.attempt.Error != "" {
			detail = r.attempt.Error
		}
		return raiseAlert(ctx, r.tx, alert{
			kind: alertWebhookFailed, subject: event.ID.String(), detail: detail,
			organisation: event.OrganisationID, site: event.SiteID, trace: event.TraceID,
		})
	case r.verdict.Status == WebhookDelivered && r.reported:
		return closeAlert(ctx, r.tx, alertWebhookFailed, event.ID.String())
	default:
		return nil
	}
}
