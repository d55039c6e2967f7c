-- Ends events whose endpoint is missing or disabled as undelivered, and drops their slots. The
-- caller holds the events' locks, and ends their tasks.
--
--   :organisations, :events  the events, one array a column
WITH given_up AS MATERIALIZED (
    SELECT * FROM unnest(:organisations::uuid[], :events::uuid[]) AS a (organisation_id, id)
), slots AS (
    DELETE FROM webhook_slots p USING given_up g WHERE p.organisation_id = g.organisation_id AND p.event_id = g.id
)
UPDATE webhook_events w SET status = 'undelivered', next_attempt_at = NULL, task_id = NULL
FROM given_up g WHERE w.organisation_id = g.organisation_id AND w.id = g.id AND w.status = 'pending'
