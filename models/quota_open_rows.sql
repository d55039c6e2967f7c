-- Counts the rows and the debit tasks of an organisation. A task exists until all of its rows are
-- settled, so that settled rows of an open task count too.
--
--   :organisation  the organisation
--   :queue         the queue of debits
--   :most          how many waiting tasks, and how many tasks in flight, are read at most; with
--                  more, the counts are too low
SELECT coalesce(sum(task.rows), 0)::bigint, count(*)
FROM (
    (SELECT o.last_row - o.first_row + 1 AS rows FROM outbox o
     WHERE o.queue = :queue AND o.organisation_id = :organisation AND o.dispatched_at IS NULL LIMIT :most)
    UNION ALL
    (SELECT o.last_row - o.first_row + 1 FROM outbox o
     WHERE o.queue = :queue AND o.organisation_id = :organisation AND o.dispatched_at IS NOT NULL LIMIT :most)
) task
