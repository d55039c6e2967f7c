-- Deletes old events that have ended, with their attempts and slots, for
-- Store.DropOldWebhookEvents. It skips locked events, and events that are removed with their
-- partition. The CASE expression is that of the index webhook_events_age: it is the maximum for
-- pending events.
--
--   :lowest, :beyond  the range of ids that are removed with their partitions; beyond exclusive
--   :age              the retention of events in milliseconds
--   :limit            the maximum number of events
WITH old AS MATERIALIZED (
    SELECT organisation_id, id,
           (SELECT p.ctid FROM webhook_slots p
            WHERE p.organisation_id = w.organisation_id AND p.event_id = w.id) AS slot
    FROM webhook_events w
    WHERE (CASE WHEN status = 'pending' THEN 9223372036854775807 ELSE requested_at END) <= svc_now() - :age
      AND (id < :lowest OR id >= :beyond)
    ORDER BY (CASE WHEN status = 'pending' THEN 9223372036854775807 ELSE requested_at END)
    LIMIT :limit FOR UPDATE SKIP LOCKED
), slots AS (
    DELETE FROM webhook_slots p USING old WHERE p.ctid = old.slot
), attempts AS (
    DELETE FROM webhook_attempts a USING old WHERE a.organisation_id = old.organisation_id AND a.event_id = old.id
)
DELETE FROM webhook_events e USING old
WHERE e.organisation_id = old.organisation_id AND e.id = old.id
