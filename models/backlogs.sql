-- Reads the load of the queues from the beginnings of indexes. Its cost does not grow with the
-- backlog: it counts what is in flight, which is bounded, and a bounded number of waiting tasks.
--
--   :queues  the queues
--   :most    the number of waiting tasks of a queue at which counting stops
SELECT q AS queue, f.n AS in_flight, f.n + w.n AS due,
       greatest(0, svc_now() - coalesce((
           SELECT min(available_at) FROM outbox WHERE redispatch_after IS NULL AND queue = q), svc_now())) AS oldest_due
FROM unnest(:queues::text[]) AS q
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM tasks_in_flight WHERE queue = q) f
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM outbox WHERE redispatch_after IS NULL AND queue = q AND available_at <= svc_now() LIMIT :most) few) w
