-- Makes nodes of the counts that do not exist yet, and returns the nodes to make of their oversized
-- parts. The migration 0002_customers explains the tree of nodes.
--
--   :sites, :levels, :buckets  the nodes, one array a column
--   :split_above               the number of links of one state above which a part becomes a node
--   :early_level, :early_split_above
--                              from this level on, the smaller limit
--   FOLDED                     customer_folded.sql: what each part of the nodes must show
--   WRITTEN                    the CTEs of customer_fold_parts.sql
--
-- customer_count_store.go replaces the variables in upper case.
WITH nodes AS (
    SELECT * FROM unnest(:sites::uuid[], :levels::int[], :buckets::bigint[]) AS n (site_id, level, bucket)
), parts AS (
    :FOLDED
), :WRITTEN
SELECT 0 AS moved, true AS oversized, site_id, level, bucket FROM oversized
