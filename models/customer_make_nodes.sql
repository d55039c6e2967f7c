-- Store.FoldLinkChanges and Store.RecountLinks make nodes of the link counts that do not exist yet.
-- The statement fills the nodes from the links, and returns the nodes to make next of their
-- oversized parts. The migration 0002_customers explains the tree of nodes.
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
