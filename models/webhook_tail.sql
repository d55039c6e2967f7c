-- Reads the next events of a stream, for WebhookTail.Next. It reads up to the oldest database
-- transaction in progress: all events of earlier transactions are visible, and none can be added.
--
--   :organisation         the organisation
--   :transaction, :event  the stream's position
--   :before               the snapshot at the beginning of the stream; events that it shows are
--                         left out
--   :resume_within        WebhookResumeWithin in milliseconds
--   :limit                the maximum number of events
--   :bytes                the total size of bodies at which a page ends; a page without events has
--                         no row, and any other page has at least one event
WITH found AS ( -- the next events
    SELECT w.organisation_id, w.requested_in, w.id, w.type, w.is_test, w.attempts, w.body
    FROM webhook_events w
    WHERE w.organisation_id = :organisation AND (w.requested_in, w.id) > (:transaction::text::xid8, :event::uuid)
      AND w.requested_in < pg_snapshot_xmin(pg_current_snapshot())
      AND NOT pg_visible_in_snapshot(w.requested_in, :before::text::pg_snapshot)
      AND w.requested_at >= (SELECT now FROM service_now) - :resume_within::bigint
    ORDER BY w.requested_in, w.id LIMIT :limit
),
sized AS ( -- the next events, each with the total size of the bodies before it
    SELECT f.*, sum(octet_length(f.body)) OVER (ORDER BY f.requested_in, f.id) - octet_length(f.body) AS before,
           count(*) OVER () AS found
    FROM found f
)
SELECT organisation_id, requested_in::text AS transaction, id, type, is_test AS test, attempts, body, found
FROM sized WHERE before < :bytes ORDER BY requested_in, id
