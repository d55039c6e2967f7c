package models

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

// An event's place at an endpoint, a row of webhook_places:
//
//	none ──▶ waiting ──▶ let go ──▶ being sent ──▶ none
//	  └───────────────────────────────▲
//
// It waits while the endpoint takes no more (see WebhookBreaker.room), uses up no attempt, and its task rests. It is let go, the longest
// waiting first, as there is room, which it takes at once: until a worker claims it, or slotHeld is over. One whose time is over while it
// is being sent had a worker that died. Whoever changes a place has its event locked, or, if it waits, the place itself.

// Places come and go so fast that their statistics say nothing: a statement finds single ones by their key in a subselect of its own, which
// no other index can serve, and changes them by where they are (ctid).

// laneParked is whether a place is one of those that wait for an endpoint, and laneTaken whether one of those that it has taken.
const (
	laneParked = `w.organisation_id = l.organisation_id AND w.endpoint_site_id = l.site_id AND w.until IS NULL`
	laneTaken  = `w.organisation_id = l.organisation_id AND w.endpoint_site_id = l.site_id AND w.until IS NOT NULL
          AND w.until > statement_timestamp()`
)

// webhookSlot is an event's place that is about to change.
type webhookSlot struct {
	lane  webhookLane
	event *WebhookEvent
	task  TaskID
	lease LeaseToken // of being sent
	n     int        // the number of the attempt then
	url   string     // that it goes to then
}

// slotArrays are places as parameters, as far as they are the same whatever becomes of them.
func slotArrays(places []webhookSlot) []any {
	n := len(places)
	organisations, events, endpoints := make([]OrganisationID, n), make([]WebhookEventID, n), make([]SiteID, n)
	sites, requested, tasks := make([]SiteID, n), make([]int64, n), make([]TaskID, n)
	for i, p := range places {
		organisations[i], events[i], endpoints[i] = p.lane.organisation, p.event.ID, p.lane.site
		sites[i], requested[i], tasks[i] = p.event.SiteID, int64(p.event.RequestedAt), p.task
	}
	return []any{organisations, events, endpoints, sites, requested, tasks}
}

// parkTasksSQL makes tasks of events that wait rest until their endpoint takes more. They are given by a common table expression "parked".
const parkTasksSQL = `
UPDATE outbox o SET available_at = (SELECT now FROM service_now) + $1, dispatched_at = NULL, redispatch_after = NULL
FROM parked p WHERE o.id = p.task_id RETURNING o.id`

// rest makes the tasks of events that wait already rest again.
func parkTasks(ctx context.Context, tx bun.Tx, tasks []TaskID) error {
	_, err := tx.Tx.ExecContext(ctx, `WITH parked AS (SELECT unnest($2::uuid[]) AS task_id)`+parkTasksSQL, parkedFor.Milliseconds(), tasks)
	return err
}

// parkSlots makes events wait, and their tasks rest, and says which: not those that somebody is sending.
func parkSlots(ctx context.Context, tx bun.Tx, places []webhookSlot) ([]TaskID, error) {
	rows, err := tx.Tx.QueryContext(ctx, `
WITH parked AS (
    INSERT INTO webhook_places AS p (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id)
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::bigint[], $7::uuid[])
    ON CONFLICT (organisation_id, event_id) DO UPDATE SET endpoint_site_id = excluded.endpoint_site_id,
        requested_at = excluded.requested_at, task_id = excluded.task_id, until = NULL
    WHERE p.token IS NULL RETURNING task_id
)`+parkTasksSQL, append([]any{parkedFor.Milliseconds()}, slotArrays(places)...)...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(id *TaskID) []any { return []any{id} })
}

// leaseSlots gives workers the places of events for WebhookLease, and says who has got one: nobody whose event somebody else is sending, or,
// unless it may wait, whose event waits.
func leaseSlots(ctx context.Context, tx bun.Tx, places []webhookSlot, mayWait bool) ([]LeaseToken, error) {
	leases, numbers, urls := make([]LeaseToken, len(places)), make([]int, len(places)), make([]string, len(places))
	for i, p := range places {
		leases[i], numbers[i], urls[i] = p.lease, p.n, p.url
	}
	rows, err := tx.Tx.QueryContext(ctx, `
INSERT INTO webhook_places AS p (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id, token, number, url, until)
SELECT t.*, statement_timestamp() + $10 * interval '1 ms'
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::uuid[], $7::uuid[], $8::int[], $9::text[]) AS t
ON CONFLICT (organisation_id, event_id) DO UPDATE SET endpoint_site_id = excluded.endpoint_site_id,
    requested_at = excluded.requested_at, task_id = excluded.task_id, token = excluded.token, number = excluded.number, url = excluded.url,
    until = excluded.until
WHERE p.token IS NULL AND (p.until IS NOT NULL OR $11) RETURNING token`,
		append(slotArrays(places), leases, numbers, urls, WebhookLease.Milliseconds(), mayWait)...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(t *LeaseToken) []any { return []any{t} })
}

// releaseSQL lets go as many events of each endpoint as it takes now (see WebhookBreaker.room), the longest waiting first. The endpoints
// are given by a common table expression "lanes". What waits for one that is disabled or gone is let go to find that out.
const releaseSQL = `, rooms AS (
    SELECT l.organisation_id, l.site_id,
           CASE WHEN e.site_id IS NULL OR e.disabled_at IS NOT NULL THEN 1000
                WHEN e.open_until IS NULL THEN greatest(0, e.width - u.n)
                WHEN now.ms < e.open_until OR u.n > 0 THEN 0
                ELSE 1 END AS room
    FROM ` + svcNow + ` now (ms) CROSS JOIN lanes l
    LEFT JOIN webhook_endpoints e ON e.organisation_id = l.organisation_id AND e.site_id = l.site_id
    CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM webhook_places w WHERE ` + laneTaken + `) u
), picked AS MATERIALIZED (
    SELECT p.place FROM rooms l CROSS JOIN LATERAL (
        SELECT w.ctid AS place FROM webhook_places w WHERE ` + laneParked + `
        ORDER BY w.requested_at, w.event_id LIMIT l.room FOR UPDATE SKIP LOCKED) p
    WHERE l.room > 0
), released AS (
    UPDATE webhook_places w SET until = statement_timestamp() + ` + slotHeld + ` FROM picked p WHERE w.ctid = p.place RETURNING w.task_id
)` + dueSQL

// dueSQL makes tasks due. They are given by a common table expression "released", and locked in the order in which everybody locks many.
const dueSQL = `, tasks AS MATERIALIZED (
    SELECT x.id FROM outbox x WHERE x.id = ANY (ARRAY(SELECT task_id FROM released)) ORDER BY x.id FOR UPDATE
)
UPDATE outbox o SET available_at = svc_now(), dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(SELECT id FROM tasks)) RETURNING o.organisation_id, o.id`

// releasedTask is the task of an event that was let go.
type releasedTask struct {
	organisation OrganisationID
	id           TaskID
}

// releaseSlots lets go what endpoints take now.
func releaseSlots(ctx context.Context, tx bun.Tx, lanes []webhookLane) ([]releasedTask, error) {
	organisations, sites := laneArrays(lanes)
	rows, err := tx.Tx.QueryContext(ctx, `
WITH lanes AS (
    SELECT l.* FROM unnest($1::uuid[], $2::uuid[]) AS l (organisation_id, site_id)
    WHERE EXISTS (SELECT FROM webhook_places w WHERE `+laneParked+`)
)`+releaseSQL, organisations, sites)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(t *releasedTask) []any { return []any{&t.organisation, &t.id} })
}

// ReleaseWebhooks lets go what every endpoint takes now: those whose breaker's time is over get their probe. It reports how
// many events it let go.
func (s *Store) ReleaseWebhooks(ctx context.Context) (int, error) {
	return s.execCount(ctx, "release webhooks", `
WITH RECURSIVE lanes (organisation_id, site_id) AS (
    (SELECT organisation_id, endpoint_site_id FROM webhook_places WHERE until IS NULL ORDER BY 1, 2 LIMIT 1)
    UNION ALL
    SELECT n.organisation_id, n.endpoint_site_id FROM lanes l CROSS JOIN LATERAL (
        SELECT w.organisation_id, w.endpoint_site_id FROM webhook_places w
        WHERE w.until IS NULL AND (w.organisation_id, w.endpoint_site_id) > (l.organisation_id, l.site_id)
        ORDER BY 1, 2 LIMIT 1) n
)`+releaseSQL)
}

// reviveStep is how many events one transaction revives: of an endpoint that has been down for long very many may wait.
const reviveStep = 1000

// reviveSQL makes events due that wait for one endpoint, $2, the longest waiting first, at most $3. Those that others are at find out by
// themselves.
var reviveSQL = reviveWhere("")

// takeOverSQL does so for those of one Site, $4, that wait for the default: what its own endpoint takes over.
var takeOverSQL = reviveWhere("AND site_id = $4")

func reviveWhere(condition string) string {
	return `
WITH waiting AS MATERIALIZED (
    SELECT ctid AS place FROM webhook_places WHERE organisation_id = $1 AND endpoint_site_id = $2 AND until IS NULL ` + condition + `
    ORDER BY requested_at, event_id LIMIT $3 FOR UPDATE SKIP LOCKED
), released AS (
    DELETE FROM webhook_places w USING waiting p WHERE w.ctid = p.place RETURNING w.task_id
)` + dueSQL
}

// reviveWaiting makes events due that wait for an endpoint, since the endpoint is not what it was. Those that still find no room
// wait anew; those beyond a step are let go as the endpoint takes them (releaseSQL).
func reviveWaiting(ctx context.Context, tx bun.Tx, organisation OrganisationID, site SiteID) error {
	_, err := tx.Tx.ExecContext(ctx, reviveSQL, organisation, site, reviveStep)
	return err
}

// takeOverStep revives what waits for the default and is an override's now, at most reviveStep events, and says how many.
func takeOverStep(ctx context.Context, db execer, organisation OrganisationID, site SiteID) (int, error) {
	res, err := db.ExecContext(ctx, takeOverSQL, organisation, SiteID{}, reviveStep, site)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// takeOver takes the steps that are left. The override is there, so that an error ends only this: what is left asks by itself after
// parkedFor, or once the default takes it.
func (s *Store) takeOver(ctx context.Context, organisation OrganisationID, site SiteID) {
	for n := reviveStep; n == reviveStep; {
		err := s.statement(ctx, func() (err error) {
			n, err = takeOverStep(ctx, s.db.DB, organisation, site)
			return err
		})
		if err != nil {
			return
		}
	}
}

// execer is a transaction or the pool.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
