-- Moves changes of links into their root node and every existing node below. Returns the number of
-- changes moved, and the oversized parts; without such a part, one row of NULLs.
--
--   :limit        the largest number of changes
--   :split_above  the number of links of one state above which a part must become a node
--   PART          the part of a node of a level that holds a link
--   WRITTEN       CTEs that add the changes in "parts" to the totals and find oversized parts
--
-- customer_count_store.go replaces the variables in upper case.
WITH gone AS (
    DELETE FROM link_changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM link_changes ORDER BY site_id LIMIT :limit))
    RETURNING site_id, invited_at, state, change
), changed AS (
    SELECT site_id, level, invited_at >> 7 * level AS bucket, :PART AS part, state, sum(change)::int AS change
    FROM gone CROSS JOIN generate_series(1, 6) AS level GROUP BY 1, 2, 3, 4, 5
), parts AS (
    SELECT * FROM changed AS c WHERE level = 6 OR EXISTS (
        SELECT FROM link_totals AS n WHERE n.site_id = c.site_id AND n.level = c.level AND n.bucket = c.bucket)
), :WRITTEN
SELECT n AS moved, level IS NOT NULL AS oversized, site_id, level, bucket
FROM (SELECT count(*) AS n FROM gone) AS counted LEFT JOIN oversized ON true
