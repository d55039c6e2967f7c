-- Store.FoldLinkChanges folds changes of customer links into the stored counts. The statement
-- deletes the changes from link_changes. It adds them to the root node of their Site, and to each
-- existing node below the root that covers them. The migration 0002_customers explains the tree of
-- nodes.
--
-- Each result row has the number of folded changes (moved) and, if oversized is true, a node to
-- make of an oversized part. If no part is oversized, the result is one row with the number alone.
--
--   :limit        the maximum number of changes
--   :split_above  a part with more links of one state than this must become a node
--   :early_level, :early_split_above
--                 on this level and above, the limit instead of :split_above if it is smaller
--   WRITTEN       the CTEs of customer_fold_parts.sql
--
-- customer_count_store.go replaces the variable in upper case.
WITH gone AS (
    -- Changes of one Site come together, so that they go into few nodes.
    DELETE FROM link_changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM link_changes ORDER BY site_id LIMIT :limit))
    RETURNING site_id, invited_at, state, change
), changed AS (
    -- The changes summed by part, for the node of each level that would cover them.
    SELECT site_id, level, link_bucket(level, invited_at) AS bucket, link_part(level, invited_at) AS part, state,
           sum(change)::int AS change
    FROM gone CROSS JOIN generate_series(1, 6) AS level GROUP BY 1, 2, 3, 4, 5
), parts AS (
    -- Only the root and nodes that exist.
    SELECT * FROM changed AS c WHERE level = 6 OR EXISTS (
        SELECT FROM link_totals AS n WHERE n.site_id = c.site_id AND n.level = c.level AND n.bucket = c.bucket)
), :WRITTEN
SELECT n AS moved, level IS NOT NULL AS oversized, site_id, level, bucket
FROM (SELECT count(*) AS n FROM gone) AS counted LEFT JOIN oversized ON true
