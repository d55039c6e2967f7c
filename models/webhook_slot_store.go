package models

import (
	"context"
	"database/sql"

	"partnerbilling/models/postgres"
)

// A webhook event's slot at an endpoint is a row of webhook_slots:
//
//	none ──▶ parked ──▶ released ──▶ leased ──▶ none
//	  └───────────────────────────────▲
//
// A parked event waits for capacity (see WebhookBreaker.capacity). It uses up no attempt, and its
// task is postponed. When the endpoint has capacity, the longest parked event is released. A
// released event occupies capacity until a worker leases it, or until slotHeld has passed. A leased
// slot whose time has passed belonged to a worker that died. A transaction that changes a slot
// holds the lock of its event or, if the event is parked, of the slot.

// Slots come and go faster than their statistics. So a statement finds single slots by primary key
// in a subselect, which no other index can serve, and changes them by ctid.

// laneParked selects the parked slots of an endpoint, and laneTaken the slots that occupy its
// capacity.
const (
	laneParked = `w.organisation_id = l.organisation_id AND w.endpoint_site_id = l.site_id AND w.until IS NULL`
	laneTaken  = `w.organisation_id = l.organisation_id AND w.endpoint_site_id = l.site_id AND w.until IS NOT NULL
          AND w.until > statement_timestamp()`
)

// webhookSlot is an event's slot that a statement is about to write.
type webhookSlot struct {
	lane  webhookLane
	event *WebhookEvent
	task  TaskID
	lease LeaseToken // of the delivery
	n     int        // the number of the leased attempt
	url   string     // the URL of the leased attempt
}

// slotArrays are slots as SQL parameters: the columns common to parking and leasing.
func slotArrays(slots []webhookSlot) []any {
	n := len(slots)
	organisations, events, endpoints := make([]OrganisationID, n), make([]WebhookEventID, n), make([]SiteID, n)
	sites, requested, tasks := make([]SiteID, n), make([]int64, n), make([]TaskID, n)
	for i, p := range slots {
		organisations[i], events[i], endpoints[i] = p.lane.organisation, p.event.ID, p.lane.site
		sites[i], requested[i], tasks[i] = p.event.SiteID, int64(p.event.RequestedAt), p.task
	}
	return []any{organisations, events, endpoints, sites, requested, tasks}
}

// parkTasksSQL postpones the tasks of parked events until their endpoint has capacity. A CTE
// "parked" supplies them.
const parkTasksSQL = `
UPDATE outbox o SET available_at = (SELECT now FROM service_now) + $1, dispatched_at = NULL, redispatch_after = NULL
FROM parked p WHERE o.id = p.task_id RETURNING o.id`

// parkTasks postpones the tasks of events that are parked already.
func parkTasks(ctx context.Context, tx postgres.Tx, tasks []TaskID) error {
	_, err := tx.Tx.Tx.ExecContext(ctx, `WITH parked AS (SELECT unnest($2::uuid[]) AS task_id)`+parkTasksSQL,
		parkedFor.Milliseconds(), tasks)
	return err
}

// parkSlots parks events and postpones their tasks, which it returns. It skips events that a worker
// is sending.
func parkSlots(ctx context.Context, tx postgres.Tx, slots []webhookSlot) ([]TaskID, error) {
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
WITH parked AS (
    INSERT INTO webhook_slots AS p (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id)
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::bigint[], $7::uuid[])
    ON CONFLICT (organisation_id, event_id) DO UPDATE SET endpoint_site_id = excluded.endpoint_site_id,
        requested_at = excluded.requested_at, task_id = excluded.task_id, until = NULL
    WHERE p.token IS NULL RETURNING task_id
)`+parkTasksSQL, append([]any{parkedFor.Milliseconds()}, slotArrays(slots)...)...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(id *TaskID) []any { return []any{id} })
}

// leaseSlots leases slots to workers for WebhookLease and returns the leases acquired. It skips
// events that are being sent and, unless mayWait is set, parked ones.
func leaseSlots(ctx context.Context, tx postgres.Tx, slots []webhookSlot, mayWait bool) ([]LeaseToken, error) {
	leases, numbers, urls := make([]LeaseToken, len(slots)), make([]int, len(slots)), make([]string, len(slots))
	for i, p := range slots {
		leases[i], numbers[i], urls[i] = p.lease, p.n, p.url
	}
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
INSERT INTO webhook_slots AS p (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id, token, number, url, until)
SELECT t.*, statement_timestamp() + $10 * interval '1 ms'
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::uuid[], $7::uuid[], $8::int[], $9::text[]) AS t
ON CONFLICT (organisation_id, event_id) DO UPDATE SET endpoint_site_id = excluded.endpoint_site_id,
    requested_at = excluded.requested_at, task_id = excluded.task_id, token = excluded.token, number = excluded.number, url = excluded.url,
    until = excluded.until
WHERE p.token IS NULL AND (p.until IS NOT NULL OR $11) RETURNING token`,
		append(slotArrays(slots), leases, numbers, urls, WebhookLease.Milliseconds(), mayWait)...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(t *LeaseToken) []any { return []any{t} })
}

// releaseSQL releases as many events of each endpoint as it has capacity for (see
// WebhookBreaker.capacity), the longest parked first. A CTE "lanes" supplies the endpoints. It
// releases events of a disabled or missing endpoint as well: their claims then end them.
const releaseSQL = `, capacities AS (
    SELECT l.organisation_id, l.site_id,
           CASE WHEN e.site_id IS NULL OR e.disabled_at IS NOT NULL THEN 1000
                WHEN e.open_until IS NULL THEN greatest(0, e.width - u.n)
                WHEN now.ms < e.open_until OR u.n > 0 THEN 0
                ELSE 1 END AS free
    FROM ` + svcNow + ` now (ms) CROSS JOIN lanes l
    LEFT JOIN webhook_endpoints e ON e.organisation_id = l.organisation_id AND e.site_id = l.site_id
    CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM webhook_slots w WHERE ` + laneTaken + `) u
), picked AS MATERIALIZED (
    SELECT p.slot FROM capacities l CROSS JOIN LATERAL (
        SELECT w.ctid AS slot FROM webhook_slots w WHERE ` + laneParked + `
        ORDER BY w.requested_at, w.event_id LIMIT l.free FOR UPDATE SKIP LOCKED) p
    WHERE l.free > 0
), released AS (
    UPDATE webhook_slots w SET until = statement_timestamp() + ` + slotHeld + ` FROM picked p WHERE w.ctid = p.slot RETURNING w.task_id
)` + dueSQL

// dueSQL makes the tasks of a CTE "released" due. It locks them in the order that all statements
// with many tasks use.
const dueSQL = `, tasks AS MATERIALIZED (
    SELECT x.id FROM outbox x WHERE x.id = ANY (ARRAY(SELECT task_id FROM released)) ORDER BY x.id FOR UPDATE
)
UPDATE outbox o SET available_at = svc_now(), dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(SELECT id FROM tasks)) RETURNING o.organisation_id, o.id`

// releasedTask is the task of a released event.
type releasedTask struct {
	organisation OrganisationID
	id           TaskID
}

// releaseSlots releases events for the free capacity of the endpoints.
func releaseSlots(ctx context.Context, tx postgres.Tx, lanes []webhookLane) ([]releasedTask, error) {
	organisations, sites := laneArrays(lanes)
	rows, err := tx.Tx.Tx.QueryContext(ctx, `
WITH lanes AS (
    SELECT l.* FROM unnest($1::uuid[], $2::uuid[]) AS l (organisation_id, site_id)
    WHERE EXISTS (SELECT FROM webhook_slots w WHERE `+laneParked+`)
)`+releaseSQL, organisations, sites)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(t *releasedTask) []any { return []any{&t.organisation, &t.id} })
}

// ReleaseWebhooks releases events for the free capacity of every endpoint, including the probe of
// an endpoint whose breaker is half-open. It returns the number of released events.
func (s *Store) ReleaseWebhooks(ctx context.Context) (int, error) {
	return s.execCount(ctx, "release webhooks", `
WITH RECURSIVE lanes (organisation_id, site_id) AS (
    (SELECT organisation_id, endpoint_site_id FROM webhook_slots WHERE until IS NULL ORDER BY 1, 2 LIMIT 1)
    UNION ALL
    SELECT n.organisation_id, n.endpoint_site_id FROM lanes l CROSS JOIN LATERAL (
        SELECT w.organisation_id, w.endpoint_site_id FROM webhook_slots w
        WHERE w.until IS NULL AND (w.organisation_id, w.endpoint_site_id) > (l.organisation_id, l.site_id)
        ORDER BY 1, 2 LIMIT 1) n
)`+releaseSQL)
}

// reviveStep is the maximum number of events that one transaction revives: an endpoint that was
// down for long may have very many parked events.
const reviveStep = 1000

// reviveSQL makes at most $3 events due that are parked for the endpoint of Site $2, the longest
// parked first. It skips locked events.
var reviveSQL = reviveWhere("")

// takeOverSQL does the same for events of one Site, $4, that are parked for the default: the Site's
// own endpoint takes them over.
var takeOverSQL = reviveWhere("AND site_id = $4")

func reviveWhere(condition string) string {
	return `
WITH waiting AS MATERIALIZED (
    SELECT ctid AS slot FROM webhook_slots WHERE organisation_id = $1 AND endpoint_site_id = $2 AND until IS NULL ` + condition + `
    ORDER BY requested_at, event_id LIMIT $3 FOR UPDATE SKIP LOCKED
), released AS (
    DELETE FROM webhook_slots w USING waiting p WHERE w.ctid = p.slot RETURNING w.task_id
)` + dueSQL
}

// reviveWaiting makes events due that are parked for an endpoint whose configuration has changed.
// Events without capacity are parked again. Events beyond one step are released as the endpoint
// gains capacity (releaseSQL).
func reviveWaiting(ctx context.Context, tx postgres.Tx, organisation OrganisationID, site SiteID) error {
	_, err := tx.Tx.Tx.ExecContext(ctx, reviveSQL, organisation, site, reviveStep)
	return err
}

// takeOverStep makes at most reviveStep events due that are parked for the default and belong to an
// override now. It returns their number.
func takeOverStep(ctx context.Context, db execer, organisation OrganisationID, site SiteID) (int, error) {
	res, err := db.ExecContext(ctx, takeOverSQL, organisation, SiteID{}, reviveStep, site)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// takeOver runs the remaining steps. The override is already committed, so an error ends only the
// takeover: the remaining events become due after parkedFor, or when the default has capacity.
func (s *Store) takeOver(ctx context.Context, organisation OrganisationID, site SiteID) {
	for n := reviveStep; n == reviveStep; {
		err := s.pg.Do(ctx, func() (err error) {
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
