-- Reads the load of each queue: the tasks in flight; the due tasks, in flight or waiting; and the
-- age in milliseconds of the oldest waiting task that is due. Its cost does not grow with the
-- backlog: tasks in flight are bounded, and so is the count of waiting ones.
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
