-- Reads the next events of a stream. It reads up to the oldest transaction in progress: all events
-- of earlier transactions are visible, and none can be added.
--
--   $1 organisation  $2 transaction and $3 event of the stream's position
--   $4 snapshot at the beginning of the stream  $5 WebhookResumeWithin in milliseconds
--   $6 most events
SELECT w.requested_in::text, w.id, w.type, w.is_test, w.attempts, w.body
FROM webhook_events w
WHERE w.organisation_id = $1 AND (w.requested_in, w.id) > ($2::text::xid8, $3::uuid)
  AND w.requested_in < pg_snapshot_xmin(pg_current_snapshot())
  AND NOT pg_visible_in_snapshot(w.requested_in, $4::text::pg_snapshot)
  AND w.requested_at >= (SELECT now FROM service_now) - $5::bigint
ORDER BY w.requested_in, w.id LIMIT $6
