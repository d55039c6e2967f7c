-- Parks webhook events, and postpones their tasks by :parked_for; a release of an event makes its
-- task due earlier. The caller holds the locks of the events. A leased slot and its task stay.
--
--   :organisations, :events, :sites, :requested
--                the events, with their Sites and RequestedAt, one array for each column
--   :endpoints   the Sites of their endpoints
--   :tasks       their tasks
--   :parked_for  parkedFor in milliseconds
WITH parked AS (
    -- Locks every slot, and writes those that are not parked for the endpoint and task yet.
    INSERT INTO webhook_slots AS p (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id)
    SELECT * FROM unnest(:organisations::uuid[], :events::uuid[], :endpoints::uuid[], :sites::uuid[],
        :requested::bigint[], :tasks::uuid[])
    ON CONFLICT (organisation_id, event_id) DO UPDATE SET endpoint_site_id = excluded.endpoint_site_id,
        requested_at = excluded.requested_at, task_id = excluded.task_id, until = NULL
    WHERE p.token IS NULL AND (p.until IS NOT NULL OR p.endpoint_site_id <> excluded.endpoint_site_id
        OR p.task_id <> excluded.task_id)
    RETURNING p.event_id
)
UPDATE outbox o SET available_at = (SELECT now FROM service_now) + :parked_for, dispatched_at = NULL,
    redispatch_after = NULL
WHERE o.id = ANY (:tasks::uuid[]) AND (SELECT count(*) FROM parked) >= 0 -- always true; locks slots before tasks
  AND NOT EXISTS (
      SELECT FROM webhook_slots p
      WHERE p.organisation_id = o.organisation_id AND p.event_id = o.subject_id AND p.token IS NOT NULL)
