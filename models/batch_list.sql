-- Store.ListBatches reads one page of a Site's batches in one effective state: a batch past its
-- deadline counts as settled. Each row is one batch of the page, newest first. It repeats what
-- concerns the list: the service time (now), the number of all batches that match (total), and
-- whether batches lie on the other side of the page's start (behind). An empty page has one row,
-- without a batch.
--
--   :site                    the id of the Site
--   :from, :to               the range of submitted_at, inclusive, in milliseconds of service time
--   :ahead_at, :ahead_key    where the page starts, exclusive: a submitted_at and a batch id
--   :behind_at, :behind_key  where the search for batches behind the page starts
--   :limit                   the maximum number of batches
--   :retention               BatchRetention in milliseconds; older batches are left out
--   STATE                    a condition on the effective state
--
-- newListStatement in page.go replaces the variables in upper case, and explains the others. All
-- parts come from one snapshot and one reading of the clock.
WITH clock AS MATERIALIZED (
    SELECT svc_now() AS now
), matching AS NOT MATERIALIZED (
    SELECT * FROM batches
    WHERE site_id = :site AND submitted_at BETWEEN :from AND :to
      AND submitted_at > (SELECT now FROM clock) - :retention AND :STATE
), page AS (
    SELECT * FROM (
        SELECT * FROM matching WHERE (submitted_at, id) :AHEAD (:ahead_at, :ahead_key)
        ORDER BY submitted_at :ORDER, id :ORDER LIMIT :MOST
    ) b LIMIT :limit
)
SELECT clock.now, (SELECT count(*) FROM matching) AS total,
       -- ORDER BY makes the planner read one index entry. EXISTS would ignore the order.
       (SELECT true FROM matching WHERE (submitted_at, id) :BEHIND (:behind_at, :behind_key)
        ORDER BY submitted_at :BACK, id :BACK LIMIT 1) IS NOT NULL AS behind,
       -- A batch stores no count of its rows in progress. Only open batches have such rows.
       (SELECT count(*) FROM batch_rows r
        WHERE b.state = 'inProgress' AND r.site_id = b.site_id AND r.batch_id = b.id
          AND r.state = 'inProgress') AS in_progress,
       b.site_id, b.id, b.organisation_id, b.batch_reference, b.state, b.row_count, b.settled_count, b.succeeded_count,
       b.total_amount, b.succeeded_amount, b.currency, b.submitted_at, b.settle_by, b.settled_at, b.cancelled_at,
       b.generation, b.retry_of, b.retried_as
FROM clock LEFT JOIN page b ON true
ORDER BY b.submitted_at DESC, b.id DESC
