-- Makes postponed debit tasks of an organisation due and returns their number, for
-- Store.WakeDebits. In each lane it skips the tasks that are due already, so that a backlog does
-- not slow it down. While the organisation's debits are paused, only the tasks of cancelled batches
-- become due: a worker would postpone the others again.
--
--   :task    the task of kind wakeDebits
--   :queue   the queue of debits
--   :most    how many tasks become due at most
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), waking AS MATERIALIZED (
    SELECT o.organisation_id,
           EXISTS (SELECT FROM debit_pauses d WHERE d.organisation_id = o.organisation_id) AS paused
    FROM outbox o WHERE o.id = :task
), postponed AS MATERIALIZED (
    SELECT w.id FROM sites s CROSS JOIN LATERAL (
        SELECT o.id FROM outbox o
        WHERE o.queue = :queue AND o.organisation_id = s.organisation_id AND o.site_id = s.id
          AND o.dispatched_at IS NULL AND o.available_at > (SELECT now FROM clock)
          AND (NOT (SELECT paused FROM waking) OR (
              SELECT batch_cancelled(b.cancelled_at, b.epoch, (SELECT cancelled_before FROM database_epoch))
              FROM batches b WHERE b.site_id = o.site_id AND b.id = o.subject_id))
        ORDER BY o.available_at, o.id LIMIT :most) w
    WHERE s.organisation_id = (SELECT organisation_id FROM waking)
    LIMIT :most
), locked AS MATERIALIZED (
    SELECT x.id FROM outbox x
    WHERE x.id = ANY (ARRAY(SELECT id FROM postponed)) AND num_nulls(x.dispatched_at) = 1
    ORDER BY x.id FOR UPDATE
), woken AS (
    UPDATE outbox o SET available_at = (SELECT now FROM clock) WHERE o.id = ANY (ARRAY(SELECT id FROM locked))
)
-- Counts the tasks found postponed, even if another statement has dispatched some of them
-- meanwhile: a count below :most tells the caller that none is left.
SELECT count(*) FROM postponed
