-- Store.CloseOverdueBatch settles the open rows of a batch past its deadline, as do readers that
-- find such a batch. The caller has locked the batch. No row is returned.
--
-- Pending rows without a debit call end as timedOut, or as cancelled in a cancelled batch, unless a
-- loss of the database puts them in doubt. All other open rows end as unconfirmed, and their tasks
-- go on to ask the rail.
--
--   :site, :batch   the ids of the Site and the batch
--   :rail_memory    RailMemory in milliseconds
WITH present AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch(:rail_memory) e
), b AS MATERIALIZED (
    SELECT b.*, batch_certain(b.epoch, present.epoch, present.certain) AS certain, present.now
    FROM batches b, present WHERE b.site_id = :site AND b.id = :batch
), r AS (
    UPDATE batch_rows r SET state = 'settled', in_doubt = r.state <> 'pending' OR r.attempts > 0 OR NOT b.certain,
        outcome = CASE WHEN r.state <> 'pending' OR r.attempts > 0 OR NOT b.certain THEN 'unconfirmed'
                       WHEN b.cancelled_at IS NOT NULL THEN 'cancelled' ELSE 'timedOut' END::row_outcome,
        settled_at = b.now, next_attempt_at = NULL, lease_token = NULL, lease_until = NULL
    FROM b
    WHERE r.site_id = :site AND r.batch_id = :batch AND r.state <> 'settled' RETURNING r.in_doubt
), n AS (
    SELECT count(*)::int AS settled, count(*) FILTER (WHERE in_doubt) AS unconfirmed FROM r
), alert AS MATERIALIZED (
    SELECT count(raise_alert('rowsUnconfirmed', b.id::text, b.organisation_id, b.site_id,
        n.unconfirmed || ' rows', b.trace_id))
    FROM b, n WHERE n.unconfirmed > 0
)
UPDATE batches c SET settled_count = c.settled_count + n.settled, state = 'settled', settled_at = b.now,
    attempts_over_at = coalesce(c.attempts_over_at, b.now)
FROM n, b, alert WHERE c.site_id = :site AND c.id = :batch AND c.state = 'inProgress'
