-- Store.CloseUnsentRows picks an open batch after the end of its time for attempts, closes its rows
-- that never had a debit call, and returns their number. Nothing was debited, so the rail is not
-- asked. Rows with a debit call, and rows in doubt after a loss of the database, are left to their
-- tasks. There is no result row if there is no such batch.
--
--   :last_attempt_before   LastAttemptBefore in milliseconds: the time for attempts ends so long
--                          before the deadline
--   :rail_memory           RailMemory in milliseconds
WITH present AS MATERIALIZED (
    SELECT * FROM current_epoch(:rail_memory)
), b AS MATERIALIZED (
    SELECT b.*, batch_certain(b.epoch, (SELECT epoch FROM present), (SELECT certain FROM present)) AS certain,
        (SELECT now FROM service_now) AS now
    FROM batches b
    WHERE b.settled_at IS NULL AND b.attempts_over_at IS NULL AND b.settle_by <= (SELECT now
        FROM service_now) + :last_attempt_before
    ORDER BY b.settle_by LIMIT 1 FOR UPDATE SKIP LOCKED
), r AS (
    UPDATE batch_rows r SET state = 'settled', settled_at = b.now, next_attempt_at = NULL,
        outcome = CASE WHEN b.cancelled_at IS NOT NULL THEN 'cancelled' ELSE 'timedOut' END::row_outcome
    FROM b WHERE r.site_id = b.site_id AND r.batch_id = b.id AND r.state = 'pending' AND r.attempts = 0 AND b.certain
    RETURNING 1
), n AS (
    SELECT count(*)::int AS settled FROM r
)
UPDATE batches c SET settled_count = c.settled_count + n.settled, attempts_over_at = b.now,
    state = CASE WHEN c.settled_count + n.settled = c.row_count THEN 'settled'::batch_state ELSE c.state END,
    settled_at = CASE WHEN c.settled_count + n.settled = c.row_count THEN b.now END
FROM n, b WHERE c.site_id = b.site_id AND c.id = b.id
RETURNING n.settled
