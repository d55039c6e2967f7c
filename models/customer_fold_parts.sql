-- These CTEs replace the variable WRITTEN in customer_fold.sql and customer_make_nodes.sql. They
-- add the changes in CTE "parts" to the totals of their nodes (written), and find the parts that
-- must become nodes (oversized).
written AS (
    INSERT INTO link_totals (site_id, level, bucket, state, totals)
    SELECT site_id, level, bucket, state, add_links((SELECT totals FROM link_totals AS t WHERE t.site_id = p.site_id
        AND t.level = p.level AND t.bucket = p.bucket AND t.state = p.state), array_agg(part), array_agg(change))
    FROM parts AS p GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (site_id, level, bucket, state) DO UPDATE SET totals = excluded.totals
    RETURNING site_id, level, bucket, state, totals
), oversized AS (
    -- Parts that have no node yet, with more links of one state than the limit: :split_above or, on
    -- :early_level and above, also :early_split_above.
    SELECT DISTINCT site_id, level - 1 AS level, bucket << 7 | part - 1 AS bucket
    FROM parts AS p JOIN written USING (site_id, level, bucket, state)
    WHERE level > 1
      AND totals[part] - coalesce(totals[part - 1], 0)
          > CASE WHEN level >= :early_level THEN least(:split_above::int, :early_split_above::int)
                 ELSE :split_above::int END
      AND NOT EXISTS (SELECT FROM link_totals AS n WHERE n.site_id = p.site_id AND n.level = p.level - 1
          AND n.bucket = p.bucket << 7 | part - 1)
)
