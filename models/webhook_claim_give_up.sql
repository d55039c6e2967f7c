-- Makes events undelivered, because their endpoint is missing or disabled, and drops their slots.
-- The caller holds the locks of the events, and ends their tasks.
--
--   :organisations, :events  the events, one array for each column
WITH given_up AS MATERIALIZED (
    SELECT * FROM unnest(:organisations::uuid[], :events::uuid[]) AS a (organisation_id, id)
), slots AS (
    DELETE FROM webhook_slots p USING given_up g WHERE p.organisation_id = g.organisation_id AND p.event_id = g.id
)
UPDATE webhook_events w SET status = 'undelivered', next_attempt_at = NULL, task_id = NULL
FROM given_up g WHERE w.organisation_id = g.organisation_id AND w.id = g.id AND w.status = 'pending'
