-- Starts a new round of each event, and returns the ids of the new tasks. If the endpoint of an
-- event is missing or disabled, the event becomes undelivered and gets no task.
--
--   :organisation, :events  the organisation, and the ids of its events
--   :tasks                  a new task id for each event
--   :kind, :queue           kind and queue of the tasks
WITH asked AS MATERIALIZED (
    SELECT w.organisation_id, w.id, w.site_id, w.trace_id, w.task_id AS old_task, a.task, svc_now() AS now,
           (SELECT p.ctid FROM webhook_slots p
            WHERE p.organisation_id = w.organisation_id AND p.event_id = w.id) AS slot,
           -- Whether the event's endpoint is enabled.
           coalesce((
               SELECT e.disabled_at IS NULL
               FROM webhook_endpoint_of(w.organisation_id, w.site_id, w.is_test, w.endpoint_site_id) e), false) AS open
    FROM unnest(:events::uuid[], :tasks::uuid[]) AS a (id, task)
    JOIN webhook_events w ON w.organisation_id = :organisation AND w.id = a.id
    ORDER BY w.id FOR UPDATE OF w
), e AS (
    UPDATE webhook_events w SET round = w.round + 1, failures = 0, requested_at = a.now,
        requested_in = pg_current_xact_id(),
        status = CASE WHEN a.open THEN 'pending' ELSE 'undelivered' END::webhook_event_status,
        next_attempt_at = CASE WHEN a.open THEN a.now END, task_id = CASE WHEN a.open THEN a.task END
    FROM asked a WHERE w.organisation_id = a.organisation_id AND w.id = a.id
), slots AS (
    -- A leased slot stays with its worker.
    DELETE FROM webhook_slots p USING asked a WHERE p.ctid = a.slot AND p.token IS NULL RETURNING p.event_id
), gone AS (
    -- The condition on slots is always true. It locks slots before tasks, as every statement does
    -- that waits for slots.
    DELETE FROM outbox o USING asked a WHERE o.id = a.old_task AND (SELECT count(*) FROM slots) >= 0
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
SELECT a.task, :kind, :queue, a.organisation_id, a.site_id, a.id, a.trace_id, a.now FROM asked a WHERE a.open
RETURNING id
