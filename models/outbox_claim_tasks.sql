-- Claims the named tasks for dispatch and returns them, for Store.ClaimTasks, right after the
-- commits that wrote them. It skips a task that is locked, dispatched or not due. It also skips a
-- task if its queue is paused, or if it exceeds the bound of its organisation or its queue.
--
--   :tasks                    ids of the tasks
--   :queue                    the queue that :organisation_in_flight and :queue_in_flight bound
--   :organisation_in_flight   how many tasks of :queue one organisation may have in flight
--   :queue_in_flight          how many tasks of :queue all organisations may have in flight
--   :other_in_flight          the same bound for each other queue and organisation
--   :webhooks                 QueueWebhooks
--   :webhooks_in_flight       factor of :other_in_flight for webhooks
--   :most_webhooks            how many webhooks one claim takes at most
--   :claim_lease              ClaimLease in milliseconds
WITH asked AS MATERIALIZED (
    -- The commit does not wait for the disk. If a crash undoes the claim, its tasks are dispatched
    -- again. LATERAL with LIMIT 1 makes the planner look each task up by its id.
    SELECT w.id, w.queue, w.organisation_id
    FROM (SELECT DISTINCT id FROM unnest(:tasks::uuid[]) AS a (id),
          (SELECT set_config('synchronous_commit', 'off', true)) AS commit) a
    CROSS JOIN LATERAL (SELECT * FROM outbox x WHERE x.id = a.id LIMIT 1) w
    WHERE w.dispatched_at IS NULL AND w.available_at <= (SELECT now FROM service_now)
      AND w.queue <> ALL (ARRAY(SELECT queue FROM queue_pauses))
), organisation_capacity AS MATERIALIZED (
    -- How many more tasks of each queue each organisation may have in flight.
    SELECT l.queue, l.organisation_id,
           CASE l.queue WHEN :queue THEN :organisation_in_flight::int
               WHEN :webhooks THEN :webhooks_in_flight::int * :other_in_flight::int
               ELSE :other_in_flight::int END - (
               SELECT count(*) FROM tasks_leased f WHERE f.queue = l.queue AND f.organisation_id = l.organisation_id
                   AND f.dispatched_at IS NOT NULL) AS free
    FROM (SELECT DISTINCT queue, organisation_id FROM asked) l
), queue_capacity AS MATERIALIZED (
    -- How many tasks this claim may take of :queue and of the webhooks. Other queues have no bound.
    SELECT q.queue, CASE q.queue WHEN :webhooks THEN :most_webhooks ELSE :queue_in_flight - (
               SELECT count(*) FROM tasks_leased f WHERE f.queue = q.queue) END AS free
    FROM (SELECT DISTINCT queue FROM asked) q WHERE q.queue IN (:queue, :webhooks)
), ranked AS (
    SELECT a.id, a.queue, row_number() OVER (PARTITION BY a.queue ORDER BY a.id) AS queue_rank
    FROM (SELECT *, row_number() OVER (PARTITION BY queue, organisation_id
        ORDER BY id) AS organisation_rank FROM asked) a
    JOIN organisation_capacity r USING (queue, organisation_id) WHERE a.organisation_rank <= r.free
), locked AS MATERIALIZED (
    -- num_nulls tests "dispatched_at IS NULL" in a form that matches no partial index.
    SELECT w.id FROM ranked t LEFT JOIN queue_capacity c USING (queue) CROSS JOIN LATERAL (
        SELECT x.id FROM outbox x WHERE x.id = t.id AND num_nulls(x.dispatched_at) = 1
            LIMIT 1 FOR UPDATE SKIP LOCKED) w
    WHERE t.queue_rank <= coalesce(c.free, t.queue_rank)
)
UPDATE outbox o SET dispatched_at = statement_timestamp(),
    redispatch_after = statement_timestamp() + :claim_lease * interval '1 ms',
       epoch = o.epoch + 1
WHERE o.id = ANY (ARRAY(SELECT id FROM locked))
RETURNING o.id, o.kind, o.organisation_id, o.site_id, o.trace_id, o.epoch, o.last_row - o.first_row + 1 AS rows
