-- Store.Lanes lists the lanes whose waiting tasks are the oldest, the oldest first. A lane is the
-- waiting tasks of one Site in one queue of the outbox. Each row is a lane, with the fields of
-- models.Lane; oldest_due is in milliseconds.
--
--   :queues           the names of the queues
--   :sites            the maximum number of Sites of each queue: the first ones in the order of ids
--   :lanes            the maximum number of lanes
--   :most             the number at which each count of tasks stops
--   :debits           QueueDebits, the queue whose lanes show recently recorded debits
--   :recorded_within  recordedWithin in milliseconds: the age up to which a debit counts as recent
--   :most_recorded    the number at which the count of recorded debits stops
WITH lanes AS MATERIALIZED (
    SELECT * FROM waiting_lanes(:queues::text[], :sites)
    ORDER BY oldest_at, queue, organisation_id, site_id LIMIT :lanes
), clock AS MATERIALIZED (
    SELECT now FROM service_now
)
SELECT l.queue, l.organisation_id, l.site_id, coalesce(g.name, '') AS organisation, coalesce(s.name, '') AS site,
       w.waiting, w.due, (SELECT count(*) FROM (
           SELECT FROM tasks_in_flight f
           WHERE f.queue = l.queue AND f.organisation_id = l.organisation_id AND f.dispatched_at IS NOT NULL
             AND f.site_id = l.site_id LIMIT :most) few) AS in_flight,
       greatest(0, (SELECT now FROM clock) - l.oldest_at) AS oldest_due, coalesce(r.recorded, 0) AS recorded
FROM lanes l
LEFT JOIN LATERAL (SELECT name FROM organisations x WHERE x.id = l.organisation_id LIMIT 1) g ON true
LEFT JOIN LATERAL (SELECT name FROM sites x WHERE x.id = l.site_id LIMIT 1) s ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, count(*) FILTER (WHERE few.available_at <= (SELECT now FROM clock)) AS due FROM (
        SELECT o.available_at FROM outbox o
        WHERE o.queue = l.queue AND o.organisation_id = l.organisation_id AND o.site_id = l.site_id
          AND o.dispatched_at IS NULL
        ORDER BY o.available_at LIMIT :most) few
) w
LEFT JOIN LATERAL (
    -- The number of debits of the Site that were recorded recently.
    SELECT count(*) AS recorded FROM (
        SELECT FROM ledger_entries e
        WHERE l.queue = :debits AND e.site_id = l.site_id
          AND e.recorded_at > (SELECT now FROM clock) - :recorded_within
        LIMIT :most_recorded) few
) r ON true
ORDER BY oldest_due DESC, l.queue, l.organisation_id, l.site_id
