-- Releases parked events of webhook endpoints, in the order of their requests, and returns their
-- tasks. It skips locked slots.
--
--   :organisations, :sites  the endpoints, one array for each column
--   :free                   the maximum number of events to release, for each endpoint
--   :slot_held              slotHeld in milliseconds
WITH picked AS MATERIALIZED (
    SELECT p.slot
    FROM unnest(:organisations::uuid[], :sites::uuid[], :free::int[]) AS k (organisation_id, site_id, free)
    CROSS JOIN LATERAL (
        SELECT w.ctid AS slot FROM webhook_slots w
        WHERE w.organisation_id = k.organisation_id AND w.endpoint_site_id = k.site_id AND w.until IS NULL
        ORDER BY w.requested_at, w.event_id LIMIT k.free FOR UPDATE SKIP LOCKED) p
)
UPDATE webhook_slots w SET until = statement_timestamp() + :slot_held * interval '1 ms'
FROM picked p WHERE w.ctid = p.slot
RETURNING w.task_id
