package models

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/uptrace/bun"
)

// WebhookClaim asks for the attempt that a task's event is due for.
type WebhookClaim struct {
	Task  TaskID
	Lease LeaseToken
}

// WebhookClaimed is what became of a claim among many. If it is neither claimed nor parked, it is for ClaimWebhook.
type WebhookClaimed struct {
	Delivery *WebhookDelivery // nil: not claimed
	Parked   bool             // the event waits until its endpoint takes more
}

// ClaimWebhooks is ClaimWebhook for many tasks in one transaction, as far as they are plain: the event is due and nobody has
// it, and nobody else is deciding about its endpoint. It leaves the others untouched. It does not wait for the disk: should Postgres
// crash before an attempt is recorded, its claim may be forgotten, and the event is sent once more, as if the worker had died before it
// counted the attempt.
func (s *Store) ClaimWebhooks(ctx context.Context, ring *Keyring, claims []WebhookClaim) ([]WebhookClaimed, error) {
	var claimed []WebhookClaimed
	err := s.inTx(ctx, func(tx bun.Tx) error {
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

// webhookClaims are many claims in their transaction.
type webhookClaims struct {
	tx     bun.Tx
	claims []WebhookClaim
	plain  []*plainClaim // those that may be taken, in the order in which their endpoints take them
	parked []*plainClaim // those that their endpoints do not take now
}

// plainClaim is one that may be taken.
type plainClaim struct {
	delivery WebhookDelivery
	lane     webhookLane
	now      Millis
	healthy  bool // so is the endpoint
	released bool // the event has its place there already
	isParked bool // it waits for the endpoint already
	breaker  WebhookBreaker
}

// webhookLane names an endpoint.
type webhookLane struct {
	organisation OrganisationID
	site         SiteID
}

func (c *webhookClaims) run(ctx context.Context, ring *Keyring) error {
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

// claimed is what became of each claim, in its place.
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

// lockDueSQL reads each event by its key, whatever the planner takes for rare: a status, or a lease, which would lead it through all
// events that wait.
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
    SELECT endpoint_site_id, until, token FROM webhook_places x
    WHERE x.organisation_id = e.organisation_id AND x.event_id = e.id LIMIT 1) p ON true
WHERE o.redispatch_after > statement_timestamp() AND e.task_id = a.task AND e.status = 'pending' AND NOT e.is_test
  AND e.next_attempt_at <= (SELECT now FROM service_now) AND w.disabled_at IS NULL
  AND p.token IS NULL AND (p.until IS NOT NULL OR p.endpoint_site_id IS NOT DISTINCT FROM w.site_id OR p.endpoint_site_id IS NULL)`

// lockEvents reads the events whose attempts are due. The lease of a task that Redis has lasts as long as the attempt does, or
// the dispatcher is about to make it so: the task is left as it is.
func (c *webhookClaims) lockEvents(ctx context.Context) error {
	tasks, leases := make([]TaskID, 0, len(c.claims)), make([]LeaseToken, 0, len(c.claims))
	seen := make(map[TaskID]bool, len(c.claims))
	for _, claim := range c.claims {
		if !seen[claim.Task] { // after a flush of Redis one task may be here twice; one of them gets the attempt
			seen[claim.Task] = true
			tasks, leases = append(tasks, claim.Task), append(leases, claim.Lease)
		}
	}
	rows, err := c.tx.Tx.QueryContext(ctx, lockDueSQL, tasks, leases)
	if err != nil {
		return err
	}
	c.plain, err = scanAll(rows, func(p **plainClaim) []any {
		*p = new(plainClaim)
		return (*p).columns()
	})
	for _, p := range c.plain {
		p.settle()
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

// settle derives the rest of what was read.
func (p *plainClaim) settle() {
	d := &p.delivery
	d.Number, d.StartedAt = d.Event.Attempts+1, p.now
	d.Fresh = p.breaker.Failures > 0 || d.Failures > 0
	p.lane, p.healthy = webhookLane{d.Event.OrganisationID, d.EndpointSite}, p.breaker.healthy()
}

// lockEndpoints locks those that are not healthy, in one order, so that nobody else decides about them meanwhile. What is
// known of them now counts. Those that have changed since are left to ClaimWebhook, and so are those that somebody else is
// deciding about: no other endpoint waits for that.
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

// distinct are the keys of those that have one, each once and in the order in which they come first.
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

// laneArrays are the endpoints' keys as parameters.
func laneArrays(lanes []webhookLane) (organisations []OrganisationID, sites []SiteID) {
	for _, l := range lanes {
		organisations, sites = append(organisations, l.organisation), append(sites, l.site)
	}
	return organisations, sites
}

// lockWebhookEndpoints locks endpoints, in one order, and reads them and the service's time. condition may narrow them down, and locked
// says what to do about those that are locked: "" is to wait.
func lockWebhookEndpoints(
	ctx context.Context, tx bun.Tx, lanes []webhookLane, condition, locked string,
) (map[webhookLane]*webhookEndpointRow, Millis, error) {
	organisations, sites := laneArrays(lanes)
	rows, err := tx.Tx.QueryContext(ctx, `
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

// keepCapacity keeps as many claims as their endpoints take now, and has the others parked. Events that were parked before an event go first,
// unless it has been let go itself. One that is parked and could go is left to ClaimWebhook.
func (c *webhookClaims) keepCapacity(ctx context.Context) error {
	organisations, sites := laneArrays(distinct(c.plain, func(p *plainClaim) (webhookLane, bool) { return p.lane, true }))
	rows, err := c.tx.Tx.QueryContext(ctx, `
SELECT l.organisation_id, l.site_id, (SELECT count(*) FROM webhook_places w WHERE `+laneTaken+`), p.requested_at, p.event_id
FROM unnest($1::uuid[], $2::uuid[]) AS l (organisation_id, site_id)
LEFT JOIN LATERAL (
    SELECT w.requested_at, w.event_id FROM webhook_places w WHERE `+laneParked+`
    ORDER BY w.requested_at, w.event_id LIMIT 1) p ON true`, organisations, sites)
	if err != nil {
		return err
	}
	type figures struct {
		lane     webhookLane
		inFlight int
		parkedAt sql.Null[Millis] // when the parked event that waits longest was asked for
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
			f.inFlight-- // this one
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

// waitsBehind says whether an event that was asked for at a time goes before this one.
func (e *WebhookEvent) waitsBehind(at Millis, id WebhookEventID) bool {
	return cmp.Or(cmp.Compare(at, e.RequestedAt), bytes.Compare(id[:], e.ID[:])) < 0
}

// park leaves those that somebody is sending by now to ClaimWebhook. Of those that wait already, only the tasks rest again.
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
	places := make([]webhookSlot, len(claims))
	for i, p := range claims {
		d := &p.delivery
		places[i] = webhookSlot{lane: p.lane, event: &d.Event, task: d.Task, lease: d.lease, n: d.Number, url: d.URL}
	}
	return places
}

func (c *webhookClaims) readSecrets(ctx context.Context, ring *Keyring) error {
	organisations := distinct(c.plain, func(p *plainClaim) (OrganisationID, bool) { return p.lane.organisation, true })
	secrets, err := webhookSecretsOf(ctx, c.tx, ring, organisations)
	if err != nil {
		return err
	}
	c.plain = slices.DeleteFunc(c.plain, func(p *plainClaim) bool { // ClaimWebhook says what is wrong with those without
		found, ok := secrets[p.lane.organisation]
		p.delivery.Secrets = found
		return !ok
	})
	return nil
}

// take leaves those that somebody has got since the events were read to ClaimWebhook.
func (c *webhookClaims) take(ctx context.Context) error {
	leases, err := leaseSlots(ctx, c.tx, slotsOf(c.plain), false)
	c.plain = slices.DeleteFunc(c.plain, func(p *plainClaim) bool { return !slices.Contains(leases, p.delivery.lease) })
	return err
}
