package models

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"slices"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// WebhookClaim asks for the due attempt of a task's event.
type WebhookClaim struct {
	Task  TaskID
	Lease LeaseToken
}

// WebhookClaimed is the result of one claim of a batch. If it is neither claimed nor parked,
// ClaimWebhook decides it.
type WebhookClaimed struct {
	Delivery *WebhookDelivery // nil: not claimed
	Parked   bool             // the event waits until its endpoint has capacity
}

// ClaimWebhooks claims many tasks in one transaction, as ClaimWebhook does for one. It skips every
// claim that is not plain: the event is not due or is leased, or another transaction holds its
// endpoint. The commit does not wait for the disk. If Postgres crashes before the attempt is
// recorded, the event may be sent again, as after the death of a worker.
func (s *Store) ClaimWebhooks(ctx context.Context, ring *seal.Keyring, claims []WebhookClaim) ([]WebhookClaimed, error) {
	var claimed []WebhookClaimed
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		c := webhookClaims{tx: tx, claims: claims}
		err := c.run(ctx, ring)
		claimed = c.claimed()
		return err
	})
	if err != nil {
		return nil, wrap("claim webhooks", err)
	}
	return claimed, nil
}

// webhookClaims are the claims of one transaction.
type webhookClaims struct {
	tx     postgres.Tx
	claims []WebhookClaim
	plain  []*plainClaim // claims to take, in the order of their endpoints' capacity
	parked []*plainClaim // claims beyond their endpoints' capacity
}

// plainClaim is a claim that this transaction may take.
type plainClaim struct {
	delivery WebhookDelivery
	lane     webhookLane
	now      Millis
	healthy  bool // the endpoint's breaker is healthy
	released bool // the event's slot counts at the endpoint already
	isParked bool // the event is parked at the endpoint already
	breaker  WebhookBreaker
}

// webhookLane identifies an endpoint.
type webhookLane struct {
	organisation OrganisationID
	site         SiteID
}

func (c *webhookClaims) run(ctx context.Context, ring *seal.Keyring) error {
	for _, step := range []func(context.Context) error{c.lockEvents, c.lockEndpoints, c.keepCapacity} {
		if err := step(ctx); err != nil || len(c.plain) == 0 && len(c.parked) == 0 {
			return err
		}
	}
	if err := c.park(ctx); err != nil || len(c.plain) == 0 {
		return err
	}
	if err := c.readSecrets(ctx, ring); err != nil {
		return err
	}
	return c.take(ctx)
}

// claimed returns the result of each claim, in the order of the claims.
func (c *webhookClaims) claimed() []WebhookClaimed {
	by := make(map[LeaseToken]WebhookClaimed, len(c.plain)+len(c.parked))
	for _, p := range c.plain {
		by[p.delivery.lease] = WebhookClaimed{Delivery: &p.delivery}
	}
	for _, p := range c.parked {
		by[p.delivery.lease] = WebhookClaimed{Parked: true}
	}
	all := make([]WebhookClaimed, len(c.claims))
	for i, claim := range c.claims {
		all[i] = by[claim.Lease]
	}
	return all
}

// lockDueSQL reads each event by its key. With another index, the planner could scan all pending
// events.
const lockDueSQL = `
SELECT a.lease, e.task_id, e.organisation_id, e.id, e.site_id, e.type, e.status, e.attempts,
       e.failures, e.round, e.created_at, e.requested_at, e.next_attempt_at, e.trace_id, e.body, w.site_id, w.url, w.failures,
       coalesce(w.open_until, 0), w.openings, w.width, coalesce(w.gone_since, 0), (SELECT now FROM service_now),
       coalesce(p.endpoint_site_id = w.site_id AND p.until > statement_timestamp(), false),
       coalesce(p.endpoint_site_id = w.site_id AND p.until IS NULL, false)
FROM (SELECT ` + notFlushed + `) AS commit CROSS JOIN unnest($1::uuid[], $2::uuid[]) AS a (task, lease)
CROSS JOIN LATERAL (
    SELECT organisation_id, subject_id, redispatch_after FROM outbox x WHERE x.id = a.task LIMIT 1) o
CROSS JOIN LATERAL (
    SELECT * FROM webhook_events x WHERE x.organisation_id = o.organisation_id AND x.id = o.subject_id
    LIMIT 1 FOR UPDATE SKIP LOCKED) e
CROSS JOIN LATERAL (
    SELECT * FROM webhook_endpoints x
    WHERE x.organisation_id = e.organisation_id AND x.site_id IN (e.site_id, '00000000-0000-0000-0000-000000000000')
    ORDER BY x.site_id DESC LIMIT 1) w
LEFT JOIN LATERAL (
    SELECT endpoint_site_id, until, token FROM webhook_slots x
    WHERE x.organisation_id = e.organisation_id AND x.event_id = e.id LIMIT 1) p ON true
WHERE o.redispatch_after > statement_timestamp() AND e.task_id = a.task AND e.status = 'pending' AND NOT e.is_test
  AND e.next_attempt_at <= (SELECT now FROM service_now) AND w.disabled_at IS NULL
  AND p.token IS NULL AND (p.until IS NOT NULL OR p.endpoint_site_id IS NOT DISTINCT FROM w.site_id OR p.endpoint_site_id IS NULL)`

// lockEvents reads the events whose attempts are due. It leaves the task unchanged: the lease of a
// dispatched task lasts as long as the attempt, or the dispatcher is about to extend it.
func (c *webhookClaims) lockEvents(ctx context.Context) error {
	tasks, leases := make([]TaskID, 0, len(c.claims)), make([]LeaseToken, 0, len(c.claims))
	seen := make(map[TaskID]bool, len(c.claims))
	for _, claim := range c.claims {
		if !seen[claim.Task] { // after a flush of Redis one task may occur twice; one of them gets the attempt
			seen[claim.Task] = true
			tasks, leases = append(tasks, claim.Task), append(leases, claim.Lease)
		}
	}
	rows, err := c.tx.Tx.Tx.QueryContext(ctx, lockDueSQL, tasks, leases)
	if err != nil {
		return err
	}
	c.plain, err = scanAll(rows, func(p **plainClaim) []any {
		*p = new(plainClaim)
		return (*p).columns()
	})
	for _, p := range c.plain {
		p.deriveDelivery()
	}
	slices.SortFunc(c.plain, func(a, b *plainClaim) int {
		return cmp.Or(cmp.Compare(a.delivery.Event.RequestedAt, b.delivery.Event.RequestedAt),
			bytes.Compare(a.delivery.Event.ID[:], b.delivery.Event.ID[:]))
	})
	return err
}

func (p *plainClaim) columns() []any {
	d, e, b := &p.delivery, &p.delivery.Event, &p.breaker
	return []any{
		&d.lease, &d.Task, &e.OrganisationID, &e.ID, &e.SiteID, &e.Type, &e.Status, &e.Attempts,
		&d.Failures, &d.round, &e.CreatedAt, &e.RequestedAt, &e.NextAttemptAt, &e.TraceID, &e.Body, &d.EndpointSite, &d.URL, &b.Failures,
		&b.OpenUntil, &b.Openings, &b.Width, &b.GoneSince, &p.now, &p.released, &p.isParked,
	}
}

// deriveDelivery derives further fields from the columns read.
func (p *plainClaim) deriveDelivery() {
	d := &p.delivery
	d.Number, d.StartedAt = d.Event.Attempts+1, p.now
	d.Fresh = p.breaker.Failures > 0 || d.Failures > 0
	p.lane, p.healthy = webhookLane{d.Event.OrganisationID, d.EndpointSite}, p.breaker.healthy()
}

// lockEndpoints locks unhealthy endpoints, in one order, and reads them again. It leaves claims to
// ClaimWebhook whose endpoint has changed since, or is locked by another transaction, so that no
// endpoint waits for another.
func (c *webhookClaims) lockEndpoints(ctx context.Context) error {
	lanes := distinct(c.plain, func(p *plainClaim) (webhookLane, bool) { return p.lane, !p.healthy })
	if len(lanes) == 0 {
		return nil
	}
	locked, _, err := lockWebhookEndpoints(ctx, c.tx, lanes, "", "SKIP LOCKED")
	if err != nil {
		return err
	}
	c.plain = slices.DeleteFunc(c.plain, func(p *plainClaim) bool {
		if p.healthy {
			return false
		}
		row := locked[p.lane]
		if row == nil || row.URL != p.delivery.URL || row.DisabledAt != 0 {
			return true
		}
		p.breaker = row.endpoint().Breaker
		p.delivery.Fresh = row.Failures > 0 || p.delivery.Failures > 0
		return false
	})
	return nil
}

// distinct returns the distinct keys of all, in the order of their first occurrence. It skips items
// without a key.
func distinct[T any, K comparable](all []T, key func(T) (K, bool)) []K {
	seen := make(map[K]bool, len(all))
	var keys []K
	for _, one := range all {
		if k, ok := key(one); ok && !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// laneArrays are the endpoints' keys as SQL parameters.
func laneArrays(lanes []webhookLane) (organisations []OrganisationID, sites []SiteID) {
	for _, l := range lanes {
		organisations, sites = append(organisations, l.organisation), append(sites, l.site)
	}
	return organisations, sites
}

// lockWebhookEndpoints locks endpoints, in one order, and reads them and the service time.
// condition selects among them. locked is the clause for endpoints that are locked already: ""
// waits.
func lockWebhookEndpoints(
	ctx context.Context, tx postgres.Tx, lanes []webhookLane, condition, locked string,
) (map[webhookLane]*webhookEndpointRow, Millis, error) {
	organisations, sites := laneArrays(lanes)
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
SELECT `+deliveryColumns+`, (SELECT svc_now())
FROM unnest($1::uuid[], $2::uuid[]) AS l (organisation_id, site_id)
JOIN webhook_endpoints w ON w.organisation_id = l.organisation_id AND w.site_id = l.site_id `+condition+`
ORDER BY w.organisation_id, w.site_id FOR UPDATE OF w `+locked, organisations, sites)
	if err != nil {
		return nil, 0, err
	}
	var now Millis
	all, err := scanAll(rows, func(r *webhookEndpointRow) []any {
		return append(r.deliveryFields(), &now)
	})
	rowOf := make(map[webhookLane]*webhookEndpointRow, len(all))
	for i := range all {
		rowOf[webhookLane{all[i].OrganisationID, all[i].SiteID}] = &all[i]
	}
	return rowOf, now, err
}

// keepCapacity keeps as many claims as their endpoints have capacity for, and marks the others to
// be parked. Events that were parked earlier go first, unless the event has been released itself. A
// parked event with capacity is left to ClaimWebhook.
func (c *webhookClaims) keepCapacity(ctx context.Context) error {
	organisations, sites := laneArrays(distinct(c.plain, func(p *plainClaim) (webhookLane, bool) { return p.lane, true }))
	rows, err := c.tx.Tx.Tx.QueryContext(ctx, `
SELECT l.organisation_id, l.site_id, (SELECT count(*) FROM webhook_slots w WHERE `+laneTaken+`), p.requested_at, p.event_id
FROM unnest($1::uuid[], $2::uuid[]) AS l (organisation_id, site_id)
LEFT JOIN LATERAL (
    SELECT w.requested_at, w.event_id FROM webhook_slots w WHERE `+laneParked+`
    ORDER BY w.requested_at, w.event_id LIMIT 1) p ON true`, organisations, sites)
	if err != nil {
		return err
	}
	type figures struct {
		lane     webhookLane
		inFlight int
		parkedAt sql.Null[Millis] // when the longest parked event was requested
		parked   sql.Null[WebhookEventID]
	}
	all, err := scanAll(rows, func(f *figures) []any {
		return []any{&f.lane.organisation, &f.lane.site, &f.inFlight, &f.parkedAt, &f.parked}
	})
	if err != nil {
		return err
	}
	busy := make(map[webhookLane]*figures, len(all))
	for i := range all {
		busy[all[i].lane] = &all[i]
	}
	c.plain = slices.DeleteFunc(c.plain, func(p *plainClaim) bool {
		f := busy[p.lane]
		if p.released {
			f.inFlight-- // the event itself
		}
		queued := !p.released && f.parked.Valid && p.delivery.Event.waitsBehind(f.parkedAt.V, f.parked.V)
		if queued || p.breaker.capacity(f.inFlight, p.now) == 0 {
			c.parked = append(c.parked, p)
			return true
		}
		if p.isParked {
			return true
		}
		f.inFlight++
		return false
	})
	return nil
}

// waitsBehind reports whether an event requested at a time goes before this one.
func (e *WebhookEvent) waitsBehind(at Millis, id WebhookEventID) bool {
	return cmp.Or(cmp.Compare(at, e.RequestedAt), bytes.Compare(id[:], e.ID[:])) < 0
}

// park parks events for their endpoints. Of parked events it only postpones the tasks. It leaves
// events that a worker is sending to ClaimWebhook.
func (c *webhookClaims) park(ctx context.Context) error {
	var waiting []TaskID
	var others []*plainClaim
	for _, p := range c.parked {
		if p.isParked {
			waiting = append(waiting, p.delivery.Task)
		} else {
			others = append(others, p)
		}
	}
	if len(waiting) > 0 {
		if err := parkTasks(ctx, c.tx, waiting); err != nil {
			return err
		}
	}
	if len(others) == 0 {
		return nil
	}
	parked, err := parkSlots(ctx, c.tx, slotsOf(others))
	c.parked = slices.DeleteFunc(c.parked, func(p *plainClaim) bool {
		return !p.isParked && !slices.Contains(parked, p.delivery.Task)
	})
	return err
}

func slotsOf(claims []*plainClaim) []webhookSlot {
	slots := make([]webhookSlot, len(claims))
	for i, p := range claims {
		d := &p.delivery
		slots[i] = webhookSlot{lane: p.lane, event: &d.Event, task: d.Task, lease: d.lease, n: d.Number, url: d.URL}
	}
	return slots
}

func (c *webhookClaims) readSecrets(ctx context.Context, ring *seal.Keyring) error {
	organisations := distinct(c.plain, func(p *plainClaim) (OrganisationID, bool) { return p.lane.organisation, true })
	secrets, err := webhookSecretsOf(ctx, c.tx, ring, organisations)
	if err != nil {
		return err
	}
	// ClaimWebhook reports the error of claims without secrets
	c.plain = slices.DeleteFunc(c.plain, func(p *plainClaim) bool {
		found, ok := secrets[p.lane.organisation]
		p.delivery.Secrets = found
		return !ok
	})
	return nil
}

// take leases the slots. It leaves events that another worker has leased since to ClaimWebhook.
func (c *webhookClaims) take(ctx context.Context) error {
	leases, err := leaseSlots(ctx, c.tx, slotsOf(c.plain), false)
	c.plain = slices.DeleteFunc(c.plain, func(p *plainClaim) bool { return !slices.Contains(leases, p.delivery.lease) })
	return err
}
