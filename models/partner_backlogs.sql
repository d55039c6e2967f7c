-- Finds how long organisations have waited for tasks that are due. It takes one step in an index
-- for each Site with waiting tasks.
--
--   :queues  the queues
--   :sites   how many Sites of each queue
WITH RECURSIVE lanes (n, queue, organisation_id, site_id, oldest_at) AS (
    SELECT 1, q.queue, first.organisation_id, first.site_id, first.available_at
    FROM unnest(:queues::text[]) AS q (queue) CROSS JOIN LATERAL (
        SELECT o.organisation_id, o.site_id, o.available_at FROM outbox o
        WHERE o.dispatched_at IS NULL AND o.queue = q.queue
        ORDER BY o.organisation_id, o.site_id, o.available_at LIMIT 1) first
    UNION ALL
    SELECT l.n + 1, l.queue, next.organisation_id, next.site_id, next.available_at
    FROM lanes l CROSS JOIN LATERAL (
        SELECT o.organisation_id, o.site_id, o.available_at FROM outbox o
        WHERE o.dispatched_at IS NULL AND o.queue = l.queue
          AND (o.organisation_id, o.site_id) > (l.organisation_id, l.site_id)
        ORDER BY o.organisation_id, o.site_id, o.available_at LIMIT 1) next
    WHERE l.n < :sites
)
SELECT l.queue, l.organisation_id, (SELECT now FROM service_now) - min(l.oldest_at) AS oldest_due
FROM lanes l WHERE l.oldest_at < (SELECT now FROM service_now)
GROUP BY l.queue, l.organisation_id
ORDER BY oldest_due DESC, l.queue, l.organisation_id
