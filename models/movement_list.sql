-- Reads one page of a Site's movements for Store.ListMovements, newest first. Every row also holds
-- the service time, the count and the sum of all movements in the range, and whether movements lie
-- behind the page. An empty page is one row without a movement. The sum ends at the largest bigint.
--
--   :site                    the Site
--   :from, :to               the range of recorded_at, inclusive, in milliseconds of service time
--   :ahead_at, :ahead_key    where the scan for the page starts: a recorded_at and a rail_key
--   :behind_at, :behind_key  where the scan for movements behind the page starts
--   :limit                   one more than the page holds, to show whether another page follows
--
-- newListStatement in page.go replaces the variables in upper case.
--
-- The totals use an index-only scan, except for entries that vacuum has not processed. Their cost
-- grows with the range.
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), total AS MATERIALIZED (
    SELECT count(*) AS n, coalesce(sum(l.amount), 0) AS amount FROM ledger_entries l
    WHERE l.site_id = :site AND l.recorded_at BETWEEN :from AND :to
), page AS (
    SELECT * FROM (
        SELECT * FROM ledger_entries l
        WHERE l.site_id = :site AND (l.recorded_at, l.rail_key) :AHEAD (:ahead_at, :ahead_key) AND l.recorded_at :UNTIL
        ORDER BY l.recorded_at :ORDER, l.rail_key :ORDER LIMIT :MOST
    ) l LIMIT :limit
)
SELECT clock.now, total.n AS total, least(total.amount, 9223372036854775807)::bigint AS total_amount,
       -- Reads only the next index entry. EXISTS would ignore the ORDER BY and could read more. The
       -- condition on :behind_at is false for the first page, which has no movements behind it.
       (SELECT true FROM ledger_entries l
        WHERE l.site_id = :site AND (l.recorded_at, l.rail_key) :BEHIND (:behind_at, :behind_key)
          AND l.recorded_at :SINCE AND :behind_at :SINCE
        ORDER BY l.recorded_at :BACK, l.rail_key :BACK LIMIT 1) IS NOT NULL AS behind,
       l.rail_key, l.recorded_at, l.amount, l.currency, l.batch_reference, l.row_reference, l.customer_reference,
       l.payment_intent_id, l.order_id
FROM clock CROSS JOIN total LEFT JOIN page l ON true
ORDER BY l.recorded_at DESC, l.rail_key DESC
