-- Drops the slots of one Site's events that are parked for the organisation's default endpoint, in
-- the order of their requests, and returns their tasks. The caller makes the tasks due, and the
-- events go to the Site's own endpoint. The statement skips locked slots.
--
--   :organisation, :site  the organisation, and its Site
--   :limit                the maximum number of events
WITH parked AS MATERIALIZED (
    SELECT ctid AS slot FROM webhook_slots
    WHERE organisation_id = :organisation AND endpoint_site_id = '00000000-0000-0000-0000-000000000000'
      AND site_id = :site AND until IS NULL
    ORDER BY requested_at, event_id LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM webhook_slots w USING parked p WHERE w.ctid = p.slot RETURNING w.task_id
