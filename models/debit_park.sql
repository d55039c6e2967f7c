-- Store.ParkChunk ends a run of a task that may have left rows open. An open row is unsettled, or
-- settled and still in doubt. No row is returned.
--
-- The task becomes due when the first open row is due or, if all are leased, when the first lease
-- ends. A row without a next_attempt_at has been due for as long as the task. While the
-- organisation's debits are paused, pending rows are due at the end of the time for attempts,
-- unless their batch is cancelled. The end of the pause makes their tasks due earlier.
--
-- The task is done if no row is open. It is also given up if the rail has told no outcome until
-- ConfirmWithin after the deadline: the rows then stay unconfirmed, and the batch's alert stays
-- open.
--
--   :task                 the task's id
--   :last_attempt_before, :confirm_within
--                         LastAttemptBefore and ConfirmWithin, in milliseconds
--   :held_retry, :sweep_delay
--                         heldRetry and sweepDelay, in milliseconds
WITH t AS MATERIALIZED (
    SELECT b.site_id, b.id, b.organisation_id, b.settle_by, o.first_row, o.last_row, n.now,
           least(o.available_at, n.now) AS due_since, statement_timestamp() AS server_now,
           b.epoch < (SELECT held_before FROM database_epoch) AS held,
           n.now >= b.settle_by + :confirm_within AS confirming_over
    FROM (SELECT (SELECT now FROM service_now) AS now) n CROSS JOIN outbox o
        JOIN batches b ON b.site_id = o.site_id AND b.id = o.subject_id
    WHERE o.id = :task
), pause AS MATERIALIZED (
    -- Locks the pause until this statement commits. A resumption can delete the pause only
    -- afterwards, and so finds the postponed task.
    SELECT d.organisation_id FROM debit_pauses d WHERE d.organisation_id = (SELECT organisation_id FROM t)
    FOR KEY SHARE
), batch AS MATERIALIZED (
    -- Locks the batch until this statement commits. A cancellation follows, and so finds the
    -- postponed task, or has committed before.
    SELECT b.cancelled_at, b.epoch FROM batches b
    WHERE b.site_id = (SELECT site_id FROM t) AND b.id = (SELECT id FROM t) AND EXISTS (SELECT FROM pause)
    FOR KEY SHARE
), postponing AS MATERIALIZED (
    -- Locks the epoch, too: an operator's decision to cancel restored work then waits for this
    -- statement, or is visible here. A statement that begins an epoch may lock epoch and batch in
    -- the other order. Postgres then ends one of the two, which is repeated.
    SELECT batch_cancelled(batch.cancelled_at, batch.epoch, e.cancelled_before) AS cancelled
    FROM batch CROSS JOIN database_epoch e
    FOR SHARE OF e
), open AS MATERIALIZED (
    SELECT count(*) AS n,
           min(CASE WHEN t.held THEN t.now + :held_retry
                    WHEN r.state = 'pending' AND t.now < t.settle_by - :last_attempt_before
                        AND EXISTS (SELECT FROM postponing WHERE NOT cancelled) THEN t.settle_by - :last_attempt_before
                    WHEN r.state <> 'settled' AND t.now >= t.settle_by THEN t.now + :sweep_delay
                    WHEN t.now < t.settle_by - :last_attempt_before THEN least(coalesce(r.next_attempt_at, t.due_since),
                        t.settle_by - :last_attempt_before)
                    ELSE coalesce(r.next_attempt_at, t.due_since) END)
               FILTER (WHERE r.lease_until IS NULL OR r.lease_until <= t.server_now) AS due,
           min(r.lease_until) FILTER (WHERE r.lease_until > t.server_now) AS lease,
           bool_and(t.confirming_over AND r.state = 'settled' AND (r.lease_until IS NULL
               OR r.lease_until <= t.server_now)) AS all_over
    FROM t JOIN batch_rows r ON r.site_id = t.site_id AND r.batch_id = t.id
        AND r.row_index BETWEEN t.first_row AND t.last_row
    WHERE r.state <> 'settled' OR r.in_doubt
), given_up AS (
    UPDATE batch_rows r SET in_doubt = false, next_attempt_at = NULL, lease_token = NULL, lease_until = NULL
    FROM t, open
    WHERE open.all_over AND r.site_id = t.site_id AND r.batch_id = t.id
      AND r.row_index BETWEEN t.first_row AND t.last_row AND r.state = 'settled' AND r.in_doubt
), done AS (
    DELETE FROM outbox o USING open WHERE o.id = :task AND (open.n = 0 OR open.all_over)
)
UPDATE outbox o SET available_at = coalesce(open.due, o.available_at),
    dispatched_at = CASE WHEN open.due IS NULL THEN o.dispatched_at END,
    redispatch_after = CASE WHEN open.due IS NULL AND o.dispatched_at IS NOT NULL THEN open.lease END
FROM open WHERE o.id = :task AND open.n > 0 AND NOT open.all_over
