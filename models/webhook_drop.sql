-- Deletes old events that have ended, with their attempts and slots. It skips locked events.
--
--   :history: WebhookHistory in milliseconds
--   :limit: the maximum number of events
WITH old AS MATERIALIZED (
    SELECT organisation_id, id,
           (SELECT p.ctid FROM webhook_slots p
            WHERE p.organisation_id = w.organisation_id AND p.event_id = w.id) AS slot
    FROM webhook_events w
    WHERE created_at <= svc_now() - :history AND requested_at <= svc_now() - :history AND status <> 'pending'
    ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
), slots AS (
    DELETE FROM webhook_slots p USING old WHERE p.ctid = old.slot
)
DELETE FROM webhook_events e USING old
WHERE e.organisation_id = old.organisation_id AND e.id = old.id
