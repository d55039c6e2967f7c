-- Store.Figures reads an operator's key figures. The one result row has
--
--   oldest_open_batch  the age, in milliseconds, of the open batch with the earliest deadline; 0 if
--                      no batch is open
--   parked_endpoints   the number of webhook endpoints with parked events
--   parked_events      the number of parked webhook events
--   open_alerts        the number of open alerts of each kind, in the order of :kinds
--
-- The statement reads only the beginnings of indexes, so that backlogs do not slow it down.
--
--   :most           the number at which each count stops
--   :settle_within  SettleWithin, from a batch's submission to its deadline, in milliseconds
--   :kinds          the kinds of alerts
WITH RECURSIVE parked (n, organisation_id, endpoint_site_id) AS (
    -- The endpoints with parked events. Each step of the recursion finds the next endpoint.
    (SELECT 1, w.organisation_id, w.endpoint_site_id FROM webhook_slots w WHERE w.until IS NULL ORDER BY 2, 3 LIMIT 1)
    UNION ALL
    SELECT p.n + 1, next.* FROM parked p CROSS JOIN LATERAL (
        SELECT w.organisation_id, w.endpoint_site_id FROM webhook_slots w
        WHERE w.until IS NULL AND (w.organisation_id, w.endpoint_site_id) > (p.organisation_id, p.endpoint_site_id)
        ORDER BY 1, 2 LIMIT 1) next
    WHERE p.n < :most
)
SELECT
    coalesce(greatest(0, now - (SELECT min(settle_by) FROM batches WHERE settled_at IS NULL) + :settle_within), 0)
        AS oldest_open_batch,
    (SELECT count(*) FROM parked) AS parked_endpoints,
    (SELECT count(*) FROM (SELECT FROM webhook_slots WHERE until IS NULL LIMIT :most) few) AS parked_events,
    ARRAY(SELECT (SELECT count(*) FROM (
              SELECT FROM alerts a WHERE a.kind = k.kind AND a.closed_at IS NULL LIMIT :most) few)
        FROM unnest(:kinds::text[]) WITH ORDINALITY AS k (kind, n) ORDER BY k.n) AS open_alerts
FROM (SELECT now FROM service_now) AS clock (now)
