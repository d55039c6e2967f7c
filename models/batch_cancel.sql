-- Store.CancelBatch cancels a batch in progress, which it has locked. No row is returned.
--
-- The pending rows are cancelled at once if the database cannot have lost commits of the batch: no
-- call about them can still debit. Otherwise they become due, and their tasks cancel them on the
-- rail. Tasks also cancel the rows in doubt.
--
--   :site, :batch   the ids of the Site and the batch
--   :rail_memory    RailMemory, how long a rail keeps a key, in milliseconds
WITH present AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch(:rail_memory) e
), b AS MATERIALIZED (
    SELECT b.*, batch_certain(b.epoch, present.epoch, present.certain) AS certain, present.now
    FROM batches b, present WHERE b.site_id = :site AND b.id = :batch
), r AS (
    UPDATE batch_rows r SET state = 'settled', outcome = 'cancelled', settled_at = b.now, next_attempt_at = NULL
    FROM b WHERE r.site_id = :site AND r.batch_id = :batch AND r.state = 'pending' AND b.certain RETURNING 1
), n AS (
    SELECT count(*)::int AS settled FROM r
), due AS (
    -- NULL: due at once.
    UPDATE batch_rows r SET next_attempt_at = NULL
    FROM b WHERE r.site_id = :site AND r.batch_id = :batch AND r.state = 'pending' AND NOT b.certain
        AND r.next_attempt_at IS NOT NULL
)
UPDATE batches c SET cancelled_at = coalesce(c.cancelled_at, b.now), settled_count = c.settled_count + n.settled,
    state = CASE WHEN c.settled_count + n.settled = c.row_count THEN 'settled'::batch_state ELSE c.state END,
    settled_at = CASE WHEN c.settled_count + n.settled = c.row_count THEN b.now END
FROM n, b WHERE c.site_id = :site AND c.id = :batch
