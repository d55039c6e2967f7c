-- Store.CancelBatch cancels a batch in progress, which it has locked. No row is returned.
--
-- The pending rows are cancelled at once if the database cannot have lost commits of the batch: no
-- call about them can still debit. Otherwise they become due with their tasks, which cancel them on
-- the rail. Tasks also cancel the rows in doubt.
--
--   :site, :batch   the ids of the Site and the batch
--   :queue          the queue of debits
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
    RETURNING 1
), postponed AS MATERIALIZED (
    -- Reads the postponed tasks of the Site's lane. For a certain batch the organisation is NULL,
    -- and no task is read.
    SELECT o.id FROM outbox o
    WHERE o.queue = :queue AND o.organisation_id = (SELECT organisation_id FROM b WHERE NOT certain)
      AND o.site_id = :site AND o.dispatched_at IS NULL AND o.available_at > (SELECT now FROM present)
      AND o.subject_id = :batch
), locked AS MATERIALIZED (
    -- Counting the rows puts their locks before those of the tasks. A task that has been dispatched
    -- meanwhile finds its rows due, unless its run is about to park it: it may then still wait for
    -- the backoff of its rows.
    SELECT x.id FROM outbox x
    WHERE x.id = ANY (ARRAY(SELECT id FROM postponed)) AND num_nulls(x.dispatched_at) = 1
      AND (SELECT count(*) FROM due) >= 0
    ORDER BY x.id FOR UPDATE
), woken AS (
    UPDATE outbox o SET available_at = (SELECT now FROM present) WHERE o.id = ANY (ARRAY(SELECT id FROM locked))
)
UPDATE batches c SET cancelled_at = coalesce(c.cancelled_at, b.now), settled_count = c.settled_count + n.settled,
    state = CASE WHEN c.settled_count + n.settled = c.row_count THEN 'settled'::batch_state ELSE c.state END,
    settled_at = CASE WHEN c.settled_count + n.settled = c.row_count THEN b.now END
FROM n, b WHERE c.site_id = :site AND c.id = :batch
