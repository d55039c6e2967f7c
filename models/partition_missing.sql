-- Lists the partitions that should exist and do not, for Store.MakePartitions: those of the present
-- period (ahead is 0) and of the next ones, the earliest first. begins is a partition's start.
--
--   :tables, :periods   the partitioned tables, and the period of each: 'week' or 'month'
--   :ahead              the number of periods after the present one
SELECT t.parent AS parent, t.period, b.begins, n AS ahead
FROM unnest(:tables::text[], :periods::text[]) AS t (parent, period) CROSS JOIN generate_series(0, :ahead::int) AS n
CROSS JOIN LATERAL (
    SELECT (date_trunc(t.period, statement_timestamp(), 'UTC') AT TIME ZONE 'UTC' + n * ('1 ' || t.period)::interval)
        AT TIME ZONE 'UTC' AS begins
) b
WHERE NOT EXISTS (SELECT FROM partitions p WHERE p.parent = t.parent AND p.lowest = id_at(b.begins))
ORDER BY n, t.parent
