-- Store.DeadLetters lists organisations with webhook events that were not delivered, those with the
-- most failed events first. Each row has three counts: events whose attempts failed (failed),
-- events without an endpoint (undelivered), and events that wait for their endpoint (parked).
--
--   :limit  the maximum number of organisations
--   :most   the number at which each count stops
SELECT o.id AS organisation_id, o.name AS organisation, n.failed, n.undelivered, n.parked
FROM organisations o CROSS JOIN LATERAL (
    SELECT
        (SELECT count(*) FROM (
            SELECT FROM webhook_events w
            WHERE w.organisation_id = o.id AND w.status = 'failed' LIMIT :most) few) AS failed,
        (SELECT count(*) FROM (
            SELECT FROM webhook_events w
            WHERE w.organisation_id = o.id AND w.status = 'undelivered' LIMIT :most) few) AS undelivered,
        (SELECT count(*) FROM (
            SELECT FROM webhook_slots w WHERE w.organisation_id = o.id AND w.until IS NULL LIMIT :most) few) AS parked
    OFFSET 0 -- keeps the planner from counting again for WHERE and ORDER BY
) n
WHERE n.failed + n.undelivered + n.parked > 0
ORDER BY n.failed DESC, n.undelivered DESC, n.parked DESC, o.id LIMIT :limit
