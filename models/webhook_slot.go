package models

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // statements
	"errors"
	"slices"

	"partnerbilling/models/postgres"
)

// A row of webhook_slots is the slot of an event at an endpoint. No row means none. The usual
// transitions:
//
//	none ──▶ parked ──▶ released ──▶ leased ──▶ none
//	  └───────────────────────────────▲
//
// A parked event waits for capacity (see WebhookBreaker.capacity). Parking uses no attempt, and
// postpones the event's task. When the endpoint has capacity, the parked event that was requested
// first is released. If a worker's record of an attempt releases the event, that worker may also
// run the event's task; see claimDueTasks. Otherwise the task is dispatched. A released event
// occupies capacity until a worker leases it, or until slotHeld has passed. An expired lease means
// that its worker died: another worker may lease the slot. A transaction that changes a slot holds
// the lock of its event or, if the event is parked, of the slot.
//
// The planner's statistics of webhook_slots are always stale. So statements look slots up by their
// whole primary key, or in the order of parked slots, and change them by that key or by ctid.

var (
	//go:embed webhook_slot_lease.sql
	leaseSlotsText string
	leaseSlotsSQL  = postgres.SQL(leaseSlotsText)

	//go:embed webhook_slot_park.sql
	parkSlotsText string
	parkSlotsSQL  = postgres.SQL(parkSlotsText)

	//go:embed webhook_slot_load.sql
	endpointLoadText string
	endpointLoadSQL  = postgres.SQL(endpointLoadText)

	//go:embed webhook_slot_parked.sql
	parkedEndpointsText string
	parkedEndpointsSQL  = postgres.SQL(parkedEndpointsText)

	//go:embed webhook_slot_release.sql
	releaseSlotsText string
	releaseSlotsSQL  = postgres.SQL(releaseSlotsText)

	//go:embed webhook_slot_revive.sql
	reviveSlotsText string
	reviveSlotsSQL  = postgres.SQL(reviveSlotsText)

	//go:embed webhook_slot_take_over.sql
	takeOverSlotsText string
	takeOverSlotsSQL  = postgres.SQL(takeOverSlotsText)

	// dueTasksSQL makes tasks due. Unless the queue is paused, it claims those of :claims for the
	// caller, for :webhook_lease milliseconds. It locks tasks in the order of their ids, so that
	// concurrent calls do not deadlock.
	dueTasksSQL = postgres.SQL(`
WITH tasks AS MATERIALIZED (
    SELECT x.id FROM outbox x WHERE x.id = ANY (:tasks::uuid[]) ORDER BY x.id FOR UPDATE
), claimed AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT FROM queue_pauses WHERE queue = :queue) THEN '{}' ELSE :claims::uuid[] END AS ids
)
UPDATE outbox o SET available_at = svc_now(),
    dispatched_at = CASE WHEN o.id = ANY (c.ids) THEN statement_timestamp() END,
    redispatch_after = CASE WHEN o.id = ANY (c.ids) THEN statement_timestamp() + :webhook_lease * interval '1 ms' END,
    epoch = o.epoch + CASE WHEN o.id = ANY (c.ids) THEN 1 ELSE 0 END
FROM claimed c WHERE o.id = ANY (ARRAY(SELECT id FROM tasks))
RETURNING o.id, o.kind, o.organisation_id, o.site_id, o.trace_id, o.epoch, o.dispatched_at IS NOT NULL AS claimed`)
)

// endpointKey identifies a webhook endpoint.
type endpointKey struct {
	organisation OrganisationID
	site         SiteID
}

// keyArrays splits the keys of endpoints into one array for each column.
func keyArrays(keys []endpointKey) (organisations []OrganisationID, sites []SiteID) {
	for _, k := range keys {
		organisations, sites = append(organisations, k.organisation), append(sites, k.site)
	}
	return organisations, sites
}

// distinct returns the distinct keys of all, in the order of their first occurrence. It skips items
// for which key returns false.
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

// webhookSlot is a slot to park or to lease. lease, number and url describe the attempt, and only
// leasing uses them.
type webhookSlot struct {
	endpoint endpointKey
	event    *WebhookEvent
	task     TaskID
	lease    LeaseToken
	number   int
	url      string
}

// waitsBehind reports whether a parked event, with this id and this RequestedAt, goes before e. The
// zero id means that no event is parked.
func (e *WebhookEvent) waitsBehind(at Millis, id WebhookEventID) bool {
	return !id.IsZero() && cmp.Or(cmp.Compare(at, e.RequestedAt), bytes.Compare(id[:], e.ID[:])) < 0
}

// slotArgs returns the arguments that parking and leasing have in common, one array for each
// column.
func slotArgs(slots []webhookSlot) postgres.Args {
	n := len(slots)
	organisations, events, endpoints := make([]OrganisationID, n), make([]WebhookEventID, n), make([]SiteID, n)
	sites, requested, tasks := make([]SiteID, n), make([]int64, n), make([]TaskID, n)
	for i, p := range slots {
		organisations[i], events[i], endpoints[i] = p.endpoint.organisation, p.event.ID, p.endpoint.site
		sites[i], requested[i], tasks[i] = p.event.SiteID, int64(p.event.RequestedAt), p.task
	}
	return postgres.Args{
		"organisations": organisations, "events": events, "endpoints": endpoints, "sites": sites,
		"requested": requested, "tasks": tasks,
	}
}

// leaseSlots leases slots to workers for WebhookLease, and returns the tokens of the leases that it
// acquired. It skips slots that are leased.
func leaseSlots(ctx context.Context, tx postgres.Tx, slots []webhookSlot) (acquired []LeaseToken, err error) {
	leases, numbers, urls := make([]LeaseToken, len(slots)), make([]int, len(slots)), make([]string, len(slots))
	for i, p := range slots {
		leases[i], numbers[i], urls[i] = p.lease, p.number, p.url
	}
	args := slotArgs(slots)
	args["leases"], args["numbers"], args["urls"] = leases, numbers, urls
	args["webhook_lease"] = WebhookLease.Milliseconds()
	err = tx.Select(ctx, leaseSlotsSQL, args, &acquired)
	return acquired, err
}

// parkSlots parks events and postpones their tasks. It skips events with a leased slot.
func parkSlots(ctx context.Context, tx postgres.Tx, slots []webhookSlot) error {
	args := slotArgs(slots)
	args["parked_for"] = parkedFor.Milliseconds()
	_, err := tx.Run(ctx, parkSlotsSQL, args)
	return err
}

// endpointLoad is how busy an endpoint is.
type endpointLoad struct {
	OrganisationID OrganisationID
	SiteID         SiteID
	InFlight       int            // released and leased slots, which occupy capacity
	ParkedAt       Millis         // RequestedAt of ParkedEvent
	ParkedEvent    WebhookEventID // the parked event that was requested first; zero: none
}

// endpointLoads reads the load of each endpoint.
func endpointLoads(
	ctx context.Context, tx postgres.Tx, keys []endpointKey,
) (map[endpointKey]*endpointLoad, error) {
	organisations, sites := keyArrays(keys)
	var loads []endpointLoad
	err := tx.Select(ctx, endpointLoadSQL, postgres.Args{"organisations": organisations, "sites": sites}, &loads)
	byKey := make(map[endpointKey]*endpointLoad, len(loads))
	for i := range loads {
		byKey[endpointKey{loads[i].OrganisationID, loads[i].SiteID}] = &loads[i]
	}
	return byKey, err
}

// releaseSlots releases as many parked events as the endpoints have free capacity for, in the order
// of their requests. It returns their tasks, which the caller makes due. It modifies keys.
func releaseSlots(ctx context.Context, tx postgres.Tx, keys []endpointKey) (released []TaskID, err error) {
	loads, err := endpointLoads(ctx, tx, keys)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(k endpointKey) bool { return loads[k].ParkedEvent.IsZero() })
	if len(keys) == 0 {
		return nil, nil
	}
	endpoints, now, err := readWebhookEndpoints(ctx, tx, readEndpointsSQL, keys)
	if err != nil {
		return nil, err
	}
	var free []int
	var ready []endpointKey
	for _, k := range keys {
		n := reviveStep // without an enabled endpoint, claims make the events undelivered
		if e := endpoints[k]; e != nil && e.DisabledAt == 0 {
			n = e.capacity(loads[k].InFlight, now)
		}
		if n > 0 {
			ready, free = append(ready, k), append(free, n)
		}
	}
	if len(ready) == 0 {
		return nil, nil
	}
	organisations, sites := keyArrays(ready)
	err = tx.Select(ctx, releaseSlotsSQL, postgres.Args{
		"organisations": organisations, "sites": sites, "free": free, "slot_held": slotHeld.Milliseconds(),
	}, &released)
	return released, err
}

// makeTasksDue makes tasks due and claims none.
func makeTasksDue(ctx context.Context, tx postgres.Tx, tasks []TaskID) error {
	_, _, err := claimDueTasks(ctx, tx, tasks, 0)
	return err
}

// claimDueTasks makes tasks due, and claims at most limit of them for WebhookLease. It claims none
// while their queue is paused. due holds the tasks that it has not claimed.
func claimDueTasks(
	ctx context.Context, tx postgres.Tx, tasks []TaskID, limit int,
) (claimed []Task, due []TaskID, err error) {
	if len(tasks) == 0 {
		return nil, nil, nil
	}
	claims := tasks[:min(limit, len(tasks))]
	var moved []struct {
		Task
		Claimed bool
	}
	err = tx.Select(ctx, dueTasksSQL, postgres.Args{
		"tasks": tasks, "claims": claims, "queue": string(QueueWebhooks),
		"webhook_lease": WebhookLease.Milliseconds(),
	}, &moved)
	for _, m := range moved {
		if m.Claimed {
			claimed = append(claimed, m.Task)
		}
	}
	if len(claimed) == 0 { // without claims, or paused
		return nil, tasks, err
	}
	return claimed, tasks[len(claims):], err
}

// ReleaseWebhooks releases as many parked events as every endpoint has free capacity for. An
// endpoint with a half-open breaker has capacity for one probe. ReleaseWebhooks returns the number
// of released events.
func (s *Store) ReleaseWebhooks(ctx context.Context) (n int, err error) {
	var rows []struct {
		OrganisationID OrganisationID
		SiteID         SiteID
	}
	if err := s.pg.Select(ctx, parkedEndpointsSQL, nil, &rows); err != nil || len(rows) == 0 {
		return 0, wrap("release webhooks", err)
	}
	keys := make([]endpointKey, len(rows))
	for i, r := range rows {
		keys[i] = endpointKey{r.OrganisationID, r.SiteID}
	}
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		released, err := releaseSlots(ctx, tx, keys)
		n = len(released)
		return errors.Join(err, makeTasksDue(ctx, tx, released))
	})
	return n, wrap("release webhooks", err)
}

// reviveStep is the maximum number of an endpoint's events that one database transaction makes due.
// After a long outage, very many may be parked.
const reviveStep = 1000

// reviveWaiting makes the parked events of a changed endpoint due, whatever its capacity, but at
// most reviveStep. A claim parks an event again if there is no capacity for it. Further events are
// released as the endpoint gains capacity.
func reviveWaiting(ctx context.Context, tx postgres.Tx, organisation OrganisationID, site SiteID) error {
	var tasks []TaskID
	err := tx.Select(ctx, reviveSlotsSQL,
		postgres.Args{"organisation": organisation, "endpoint": site, "limit": reviveStep}, &tasks)
	if err != nil {
		return err
	}
	return makeTasksDue(ctx, tx, tasks)
}

// takeOverStep makes due at most reviveStep events that are parked for the organisation's default
// endpoint and now belong to the Site's own. It returns their number.
func takeOverStep(ctx context.Context, tx postgres.Tx, organisation OrganisationID, site SiteID) (int, error) {
	var tasks []TaskID
	err := tx.Select(ctx, takeOverSlotsSQL,
		postgres.Args{"organisation": organisation, "site": site, "limit": reviveStep}, &tasks)
	if err != nil {
		return 0, err
	}
	return len(tasks), makeTasksDue(ctx, tx, tasks)
}

// takeOver repeats takeOverStep until no event is left, after the Site's endpoint is committed. It
// ends silently at an error. The remaining events then become due after parkedFor, or when the
// default endpoint has capacity.
func (s *Store) takeOver(ctx context.Context, organisation OrganisationID, site SiteID) {
	for n := reviveStep; n == reviveStep; {
		err := s.pg.InTx(ctx, func(tx postgres.Tx) (err error) {
			n, err = takeOverStep(ctx, tx, organisation, site)
			return err
		})
		if err != nil {
			return
		}
	}
}
