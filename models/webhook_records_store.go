package models

import (
	"context"

	"partnerbilling/models/postgres"
)

// WebhookSuccess is an attempt that has delivered its event.
type WebhookSuccess struct {
	Delivery WebhookDelivery
	Attempt  WebhookAttempt
}

// RecordDelivered records many successes in one transaction, as RecordWebhook does for one. It
// skips a success whose worker has lost its lease or whose event is not in its first round: done is
// false for those, and RecordWebhook records them. released are tasks, by organisation, that the
// endpoints have capacity for and that may be dispatched.
func (s *Store) RecordDelivered(
	ctx context.Context, successes []WebhookSuccess,
) (done []bool, released map[OrganisationID][]TaskID, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		r := webhookRecords{tx: tx, successes: successes, done: make([]bool, len(successes))}
		for _, step := range []func(context.Context) error{r.writeEvents, r.writeBreakers, r.endTasks} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		done = r.done
		released, err = r.release(ctx)
		return err
	})
	if err != nil {
		return nil, nil, wrap("record delivered webhooks", err)
	}
	return done, released, nil
}

// webhookRecords are the records of one transaction.
type webhookRecords struct {
	tx        postgres.Tx
	successes []WebhookSuccess

	done   []bool
	narrow map[webhookLane]bool // endpoints with parked events, or with new capacity
}

// recordDeliveredSQL deletes the slots, sets the events' status and logs the attempts. It reads
// each event by its key. With another index, the planner could scan all pending events.
const recordDeliveredSQL = `
WITH e AS MATERIALIZED (
    SELECT r.*, w.status, w.round, p.slot
    FROM (SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::uuid[], $6::bigint[], $7::int[], $8::int[],
              $9::text[], $10::text[], $11::bytea[])
          WITH ORDINALITY AS r (organisation_id, id, lease, number, site_id, started_at, duration_ms, status_code, url, address, head, i)
          ORDER BY organisation_id, id) r
    CROSS JOIN LATERAL (
        SELECT status, round FROM webhook_events x WHERE x.organisation_id = r.organisation_id AND x.id = r.id
        LIMIT 1 FOR UPDATE) w
    CROSS JOIN LATERAL (
        SELECT ctid AS slot FROM webhook_slots x WHERE x.organisation_id = r.organisation_id AND x.event_id = r.id
        LIMIT 1) p
), mine AS (
    DELETE FROM webhook_slots p USING e
    WHERE p.ctid = e.slot AND p.token = e.lease AND e.status = 'pending' AND e.round = 1
    RETURNING e.*
), decided AS (
    UPDATE webhook_events w SET status = 'delivered', attempts = greatest(w.attempts, m.number),
        delivered_at = (SELECT now FROM service_now), next_attempt_at = NULL, task_id = NULL
    FROM mine m WHERE w.organisation_id = m.organisation_id AND w.id = m.id
), logged AS (
    INSERT INTO webhook_attempts AS a (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms, status_code, url,
        address, response_head)
    SELECT organisation_id, id, number, site_id, started_at, duration_ms, status_code, url, address, head FROM mine
    ON CONFLICT (organisation_id, event_id, number) DO UPDATE SET started_at = excluded.started_at,
        duration_ms = excluded.duration_ms, status_code = excluded.status_code, address = excluded.address, error = excluded.error,
        response_head = excluded.response_head
)
SELECT l.i, EXISTS (SELECT FROM webhook_slots w WHERE ` + laneParked + `) FROM mine l`

func (r *webhookRecords) writeEvents(ctx context.Context) error {
	n := len(r.successes)
	organisations, events := make([]OrganisationID, n), make([]WebhookEventID, n)
	leases, sites := make([]LeaseToken, n), make([]SiteID, n)
	numbers, durations, codes := make([]int, n), make([]int64, n), make([]int, n)
	started, urls, addresses, heads := make([]int64, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i := range r.successes {
		d, a := &r.successes[i].Delivery, &r.successes[i].Attempt
		organisations[i], events[i] = d.Event.OrganisationID, d.Event.ID
		leases[i], sites[i], numbers[i] = d.lease, d.EndpointSite, d.Number
		started[i], durations[i], codes[i] = int64(d.StartedAt), a.Duration.Milliseconds(), a.StatusCode
		urls[i], addresses[i], heads[i] = d.URL, a.Address, orEmpty(a.ResponseHead)
	}
	rows, err := r.tx.Tx.Tx.QueryContext(ctx, recordDeliveredSQL,
		organisations, events, leases, numbers, sites, started, durations, codes, urls, addresses, heads)
	if err != nil {
		return err
	}
	type written struct {
		i      int // from 1
		parked bool
	}
	all, err := scanAll(rows, func(w *written) []any { return []any{&w.i, &w.parked} })
	r.narrow = map[webhookLane]bool{}
	for _, w := range all {
		r.done[w.i-1] = true
		if w.parked {
			r.narrow[r.successes[w.i-1].Delivery.lane()] = true
		}
	}
	return err
}

// lane is the delivery's endpoint.
func (d *WebhookDelivery) lane() webhookLane {
	return webhookLane{d.Event.OrganisationID, d.EndpointSite}
}

// unhealthySQL is the negation of WebhookBreaker.healthy.
const unhealthySQL = `
    AND ((w.failures, w.openings, w.width) <> (0, 0, 32) OR w.open_until IS NOT NULL OR w.gone_since IS NOT NULL)`

// writeBreakers updates the endpoints' breakers, once for each success. It does not touch healthy
// endpoints.
func (r *webhookRecords) writeBreakers(ctx context.Context) error {
	var lanes []webhookLane
	seen := map[webhookLane]bool{}
	for i := range r.successes {
		if lane := r.successes[i].Delivery.lane(); r.done[i] && !seen[lane] {
			seen[lane] = true
			lanes = append(lanes, lane)
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	locked, now, err := lockWebhookEndpoints(ctx, r.tx, lanes, unhealthySQL, "")
	if err != nil || len(locked) == 0 {
		return err
	}
	moved := make(map[webhookLane]WebhookBreaker, len(locked))
	for i := range r.successes {
		d := &r.successes[i].Delivery
		row := locked[d.lane()]
		if !r.done[i] || row == nil || row.URL != d.URL { // an attempt at an earlier URL does not count
			continue
		}
		breaker, ok := moved[d.lane()]
		if !ok {
			breaker = row.endpoint().Breaker
		}
		moved[d.lane()] = breaker.after(true, false, now)
		r.narrow[d.lane()] = true
	}
	return writeWebhookBreakers(ctx, r.tx, moved)
}

func writeWebhookBreakers(ctx context.Context, tx postgres.Tx, moved map[webhookLane]WebhookBreaker) error {
	var organisations []OrganisationID
	var sites []SiteID
	var failures, openings, widths []int
	for lane, b := range moved {
		organisations, sites = append(organisations, lane.organisation), append(sites, lane.site)
		failures, openings, widths = append(failures, b.Failures), append(openings, b.Openings), append(widths, b.Width)
	}
	_, err := tx.Tx.Tx.ExecContext(ctx, `
UPDATE webhook_endpoints w SET failures = b.failures, openings = b.openings, width = b.width, open_until = NULL, gone_since = NULL
FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::int[]) AS b (organisation_id, site_id, failures, openings, width)
WHERE w.organisation_id = b.organisation_id AND w.site_id = b.site_id`, organisations, sites, failures, openings, widths)
	return err // a success leaves no breaker open
}

// endTasks ends the tasks, whose locks follow those of events and endpoints, as everywhere.
func (r *webhookRecords) endTasks(ctx context.Context) error {
	var tasks []TaskID
	for i := range r.successes {
		if r.done[i] {
			tasks = append(tasks, r.successes[i].Delivery.Task)
		}
	}
	_, err := r.tx.Tx.Tx.ExecContext(ctx, `DELETE FROM outbox WHERE id = ANY ($1::uuid[])`, tasks)
	return err
}

// release releases events for the free capacity of the endpoints.
func (r *webhookRecords) release(ctx context.Context) (map[OrganisationID][]TaskID, error) {
	if len(r.narrow) == 0 {
		return nil, nil
	}
	var lanes []webhookLane
	for lane := range r.narrow {
		lanes = append(lanes, lane)
	}
	tasks, err := releaseSlots(ctx, r.tx, lanes)
	released := map[OrganisationID][]TaskID{}
	for _, t := range tasks {
		released[t.organisation] = append(released[t.organisation], t.id)
	}
	return released, err
}
