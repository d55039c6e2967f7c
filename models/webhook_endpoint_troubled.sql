-- Lists the endpoints that are disabled or failing, that have an open or half-open breaker, or that
-- have parked events, for Store.TroubledEndpoints. It reads every endpoint: they are few, one for
-- each organisation, and some for Sites.
--
--   :limit    how many endpoints at most
--   :failing  the number of failures in a row from which an endpoint counts as failing
--   :most     the number at which counting of events stops
SELECT e.organisation_id, o.name AS organisation, e.site_id, e.url, e.failures, coalesce(e.open_until, 0) AS open_until,
       coalesce(e.disabled_at, 0) AS disabled_at, p.parked, coalesce(f.parked_since, 0) AS parked_since
FROM webhook_endpoints e
JOIN organisations o ON o.id = e.organisation_id
CROSS JOIN LATERAL (
    SELECT count(*) AS parked FROM (
        SELECT FROM webhook_slots w
        WHERE w.organisation_id = e.organisation_id AND w.endpoint_site_id = e.site_id AND w.until IS NULL
        LIMIT :most) few
) p
LEFT JOIN LATERAL (
    SELECT w.requested_at AS parked_since FROM webhook_slots w
    WHERE w.organisation_id = e.organisation_id AND w.endpoint_site_id = e.site_id AND w.until IS NULL
    ORDER BY w.requested_at, w.event_id LIMIT 1
) f ON true
WHERE e.disabled_at IS NOT NULL OR e.failures >= :failing OR e.open_until IS NOT NULL OR p.parked > 0
ORDER BY e.organisation_id, e.site_id LIMIT :limit
