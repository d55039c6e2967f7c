-- Deletes old events that have ended, with their attempts and slots. It skips locked events, and
-- events that go with their partition.
--
--   :lowest, :beyond  the ids of events that go with their partitions; beyond exclusive
--   :age              their retention in milliseconds
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
