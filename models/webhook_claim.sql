-- Locks the events of tasks for Store.ClaimWebhooks, and reads what decides whether their attempts
-- may begin: the event, its endpoint and its slot. If another transaction has locked an event, the
-- row only says so (locked). A task that is done has no row. The Go type claimedEvent describes the
-- columns.
--
--   :tasks, :leases  the tasks, and the lease tokens of their claims
--   :healthy         the breaker of a healthy endpoint
SELECT a.task, a.lease, (SELECT now FROM service_now) AS now,
       coalesce(o.redispatch_after > statement_timestamp(), false) AS task_leased,
       e.id IS NULL AND EXISTS (
           SELECT FROM webhook_events x WHERE x.organisation_id = o.organisation_id AND x.id = o.subject_id) AS locked,
       coalesce(e.task_id = a.task AND e.status = 'pending', false) AS current,
       e.organisation_id, e.id, e.site_id, e.type, e.is_test AS test, e.status, e.attempts,
       e.failures AS round_failures, e.round, e.created_at, e.requested_at, e.next_attempt_at, e.trace_id, e.body,
       w.site_id IS NOT NULL AS has_endpoint, w.site_id IS NOT NULL AND w.disabled_at IS NULL AS usable,
       w.site_id AS endpoint_site, w.url, w.failures > 0 OR e.failures > 0 AS after_failure,
       webhook_breaker(w.failures, w.open_until, w.openings, w.width, w.gone_since) = :healthy::bigint[] AS healthy,
       p.number AS slot_number, coalesce(p.until > statement_timestamp(), false) AS slot_live,
       coalesce(p.endpoint_site_id = w.site_id, false) AS slot_at_endpoint
-- The commit does not wait for the disk: a claim that a crash undoes is made again.
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS commit
CROSS JOIN unnest(:tasks::uuid[], :leases::uuid[]) AS a (task, lease)
CROSS JOIN LATERAL (
    SELECT organisation_id, subject_id, redispatch_after FROM outbox x WHERE x.id = a.task LIMIT 1
) o
LEFT JOIN LATERAL (
    -- LATERAL with LIMIT 1 reads the event by its primary key. With another index, the planner
    -- could scan all pending events.
    SELECT * FROM webhook_events x WHERE x.organisation_id = o.organisation_id AND x.id = o.subject_id
    LIMIT 1 FOR UPDATE SKIP LOCKED
) e ON true
LEFT JOIN LATERAL webhook_endpoint_of(e.organisation_id, e.site_id, e.is_test, e.endpoint_site_id) w ON true
LEFT JOIN LATERAL (
    SELECT endpoint_site_id, until, number FROM webhook_slots x
    WHERE x.organisation_id = e.organisation_id AND x.event_id = e.id LIMIT 1
) p ON true
