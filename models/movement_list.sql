-- One page of a Site's movements, whether movements lie behind it, and the totals of the whole
-- range. Go replaces the words in angle brackets.
--
--   $1 site  $2 from  $3 to  $4, $5 the position ahead  $6, $7 the position behind
--
-- All parts come from one snapshot and one reading of the clock. The totals use an index-only scan,
-- except for entries that vacuum has not processed. Their cost grows with the range.
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), total AS MATERIALIZED (
    SELECT count(*) AS n, coalesce(sum(l.amount), 0) AS amount FROM ledger_entries l
    WHERE l.site_id = $1 AND l.recorded_at BETWEEN $2 AND $3
), page AS (
    SELECT * FROM ledger_entries l
    WHERE l.site_id = $1 AND (l.recorded_at, l.rail_key) <ahead> ($4, $5) AND l.recorded_at <end>
    ORDER BY l.recorded_at <order>, l.rail_key <order> LIMIT <limit>
)
SELECT clock.now, total.n, least(total.amount, 9223372036854775807)::bigint,
       (SELECT true FROM ledger_entries l
        WHERE l.site_id = $1 AND (l.recorded_at, l.rail_key) <behind> ($6, $7) AND l.recorded_at <beginning> AND $6 <beginning>
        ORDER BY l.recorded_at <back>, l.rail_key <back> LIMIT 1) IS NOT NULL,
       <columns>
FROM clock CROSS JOIN total LEFT JOIN page l ON true
ORDER BY l.recorded_at DESC, l.rail_key DESC
