-- Counts the rows of an organisation's debit tasks and, in a second column, these tasks, for the
-- quota of open rows. A task exists until all rows of its chunk are settled and none is in doubt.
-- Until then, its settled rows count too.
--
--   :organisation  the organisation
--   :queue         QueueDebits
--   :most          how many waiting tasks, and how many dispatched tasks, are read at most; with
--                  more, the counts are too low
SELECT coalesce(sum(task.rows), 0)::bigint, count(*)
FROM (
    (SELECT o.last_row - o.first_row + 1 AS rows FROM outbox o
     WHERE o.queue = :queue AND o.organisation_id = :organisation AND o.dispatched_at IS NULL LIMIT :most)
    UNION ALL
    (SELECT o.last_row - o.first_row + 1 FROM outbox o
     WHERE o.queue = :queue AND o.organisation_id = :organisation AND o.dispatched_at IS NOT NULL LIMIT :most)
) task
