-- Records attempts for Store.RecordWebhooks: drops their slots, decides their events and logs them.
-- It returns a row for each attempt, with what the caller needs to decide about endpoints and
-- tasks; the Go type recordedEvent describes it. An event that retention has dropped has no row.
--
-- An attempt decides the status of its event if its worker holds the lease. A success also decides
-- without the lease, unless the event has ended, or a redelivery has begun another round.
--
--   :organisations, :events, :leases, :rounds, :numbers, :verdicts
--                         the attempts and their verdicts, each of another event, one array for
--                         each column
--   :retries              the time until the next attempt of a pending event, in milliseconds
--   :endpoints            the Sites of the endpoints
--   :started, :durations  when each attempt began, in service time, and how many milliseconds it
--                         took
--   :codes                the status codes; 0: no answer
--   :urls, :addresses, :errors, :heads
--                         the other columns of the attempts
--   :healthy              the breaker of a healthy endpoint
WITH e AS MATERIALIZED (
    -- Locks the events in the order of their keys. LATERAL with LIMIT 1 reads each by its primary
    -- key. With another index, the planner could scan all pending events.
    SELECT r.*, w.round AS event_round, w.task_id, w.status = 'pending' AND w.round = r.round AS open, p.slot
    FROM (
        SELECT * FROM unnest(:organisations::uuid[], :events::uuid[], :leases::uuid[], :rounds::int[], :numbers::int[],
            :verdicts::text[], :retries::bigint[], :endpoints::uuid[], :started::bigint[], :durations::int[],
            :codes::int[], :urls::text[], :addresses::text[], :errors::text[], :heads::bytea[]) WITH ORDINALITY
            AS r (organisation_id, id, lease, round, number, verdict, retry, site_id, started_at, duration_ms,
                  status_code, url, address, error, head, i)
        ORDER BY organisation_id, id) r
    CROSS JOIN LATERAL (
        SELECT status, round, task_id FROM webhook_events x WHERE x.organisation_id = r.organisation_id AND x.id = r.id
        LIMIT 1 FOR UPDATE) w
    LEFT JOIN LATERAL (
        SELECT ctid AS slot FROM webhook_slots x WHERE x.organisation_id = r.organisation_id AND x.event_id = r.id
        LIMIT 1) p ON true
), ended AS (
    DELETE FROM webhook_slots p USING e
    WHERE p.ctid = e.slot AND (p.token = e.lease OR e.open AND e.verdict = 'delivered')
    RETURNING e.i, p.number
), d AS MATERIALIZED (
    SELECT e.*, ended.number AS slot_number, e.open AND (e.verdict = 'delivered' OR ended.i IS NOT NULL) AS decides,
           (SELECT now FROM service_now) AS now
    FROM e LEFT JOIN ended ON ended.i = e.i
), decided AS (
    UPDATE webhook_events w SET
        status = CASE WHEN d.decides THEN d.verdict::webhook_event_status ELSE w.status END,
        attempts = greatest(w.attempts, d.number, d.slot_number), -- slot_number: a later worker's attempt
        failures = w.failures + CASE WHEN d.decides AND d.verdict <> 'delivered' THEN 1 ELSE 0 END,
        delivered_at = CASE WHEN d.verdict = 'delivered' THEN d.now ELSE w.delivered_at END,
        next_attempt_at = CASE WHEN NOT d.decides THEN w.next_attempt_at
                               WHEN d.verdict = 'pending' THEN d.now + d.retry END,
        task_id = CASE WHEN d.decides AND d.verdict <> 'pending' THEN NULL ELSE w.task_id END
    FROM d WHERE w.organisation_id = d.organisation_id AND w.id = d.id
), logged AS (
    INSERT INTO webhook_attempts AS a (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms,
        status_code, url, address, error, response_head)
    SELECT organisation_id, id, number, site_id, started_at, duration_ms, nullif(status_code, 0), url, address, error,
           head
    FROM d
    ON CONFLICT (organisation_id, event_id, number) DO UPDATE SET started_at = excluded.started_at,
        duration_ms = excluded.duration_ms, status_code = excluded.status_code, address = excluded.address,
        error = excluded.error, response_head = excluded.response_head
    WHERE a.status_code IS NULL OR a.status_code NOT BETWEEN 200 AND 299 -- a success stays
), endpoints AS MATERIALIZED (
    -- Reads each endpoint once.
    SELECT k.organisation_id, k.site_id, w.url, coalesce(p.parked, false) AS parked,
           webhook_breaker(w.failures, w.open_until, w.openings, w.width, w.gone_since) = :healthy::bigint[] AS healthy
    FROM (SELECT DISTINCT organisation_id, site_id FROM d) k
    LEFT JOIN LATERAL (
        SELECT * FROM webhook_endpoints x WHERE x.organisation_id = k.organisation_id AND x.site_id = k.site_id LIMIT 1
    ) w ON true
    LEFT JOIN LATERAL (
        SELECT true AS parked FROM webhook_slots x
        WHERE x.organisation_id = k.organisation_id AND x.endpoint_site_id = k.site_id AND x.until IS NULL
        ORDER BY x.requested_at, x.event_id LIMIT 1
    ) p ON true
)
SELECT d.i, d.decides AS decided, CASE WHEN d.event_round <> d.round THEN d.task_id END AS new_task,
       d.event_round > 1 AS redelivered,
       -- A success at a healthy endpoint changes nothing. An attempt at an earlier URL does not
       -- count.
       coalesce(k.url = d.url AND (d.verdict <> 'delivered' OR NOT k.healthy), false) AS moves_breaker, k.parked
FROM d JOIN endpoints k USING (organisation_id, site_id)
