-- Makes missing nodes of the link counts, for Store.FoldLinkChanges and Store.RecountLinks. The
-- statement fills the nodes from the links. Each result row names a node to make next, of an
-- oversized part. The rows have the columns of customer_fold.sql, with moved = 0. The migration
-- 0002_customers explains the tree of nodes.
--
--   :sites, :levels, :buckets  the nodes to make, one array a column
--   :split_above               a part with more links of one state than this must become a node
--   :early_level, :early_split_above
--                              on this level and above, the limit instead of :split_above if it is
--                              smaller
--   FOLDED                     customer_folded.sql: the links that each part of the nodes must show
--   WRITTEN                    the CTEs of customer_fold_parts.sql
--
-- customer_count_store.go replaces the variables in upper case.
WITH nodes AS (
    SELECT * FROM unnest(:sites::uuid[], :levels::int[], :buckets::bigint[]) AS n (site_id, level, bucket)
), parts AS (
    :FOLDED
), :WRITTEN
SELECT 0 AS moved, true AS oversized, site_id, level, bucket FROM oversized
