-- Makes nodes of the counts that do not exist yet, and returns their oversized parts.
--
--   :sites, :levels, :buckets  the nodes, in one order
--   :split_above               the number of links of one state above which a part becomes a node
--   FOLDED                     the link counts that each part of a node must show
--   WRITTEN                    CTEs that add the changes in "parts" to the totals and find
--                              oversized parts
--
-- customer_count_store.go replaces the variables in upper case.
WITH nodes AS (
    SELECT * FROM unnest(:sites::uuid[], :levels::int[], :buckets::bigint[]) AS n (site_id, level, bucket)
), parts AS (
    :FOLDED
), :WRITTEN
SELECT 0 AS moved, true AS oversized, site_id, level, bucket FROM oversized
