-- Drops the slots of events that are parked for a webhook endpoint, in the order of their requests,
-- and returns their tasks, which the caller makes due. It skips locked slots.
--
--   :organisation, :endpoint  the endpoint, by its organisation and its Site
--   :limit                    the maximum number of events
WITH parked AS MATERIALIZED (
    SELECT ctid AS slot FROM webhook_slots
    WHERE organisation_id = :organisation AND endpoint_site_id = :endpoint AND until IS NULL
    ORDER BY requested_at, event_id LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM webhook_slots w USING parked p WHERE w.ctid = p.slot RETURNING w.task_id
