-- Store.Backlogs reads the load of the task queues. One row for each queue has
--
--   in_flight   the number of tasks in flight, without webhook retries that are not due yet
--   due         the number of due tasks, in flight or waiting
--   oldest_due  the age, in milliseconds, of the oldest waiting task that is due; 0 if none is
--
-- The cost does not grow with the backlog: the dispatcher bounds the tasks in flight, and :most the
-- waiting tasks that are counted.
--
--   :queues  the names of the queues
--   :most    the number of waiting tasks of a queue at which counting stops
SELECT q AS queue, f.n AS in_flight, f.n + w.n AS due,
       greatest(0, svc_now() - coalesce((
           SELECT min(available_at) FROM outbox WHERE redispatch_after IS NULL AND queue = q), svc_now())) AS oldest_due
FROM unnest(:queues::text[]) AS q
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM tasks_in_flight WHERE queue = q) f
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM outbox WHERE redispatch_after IS NULL AND queue = q AND available_at <= svc_now()
        LIMIT :most) few) w
