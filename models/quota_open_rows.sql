-- Sums the rows of an organisation's debit tasks, and counts those tasks. A task is there until all
-- of its rows, at most 200 of one batch, are settled.
--
--   :organisation  the organisation
--   :queue         the queue of debits
--   :most          the largest number of tasks to read, of those that wait and of those in flight
SELECT coalesce(sum(task.rows), 0)::bigint, count(*)
FROM (
    (SELECT o.last_row - o.first_row + 1 AS rows FROM outbox o
     WHERE o.queue = :queue AND o.organisation_id = :organisation AND o.dispatched_at IS NULL LIMIT :most)
    UNION ALL
    (SELECT o.last_row - o.first_row + 1 FROM outbox o
     WHERE o.queue = :queue AND o.organisation_id = :organisation AND o.dispatched_at IS NOT NULL LIMIT :most)
) task
