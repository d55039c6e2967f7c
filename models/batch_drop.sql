-- Store.DropOldBatches deletes settled batches past their retention, with their rows. It deletes
-- one batch, or several that have at most :limit rows together. The statement skips locked batches
-- and batches with a row in doubt. It returns the number of deleted batches.
--
-- A batch whose id lies from :lowest to :beyond is deleted without its rows, which do not count
-- towards :limit. Retention drops the partitions that hold such rows.
--
--   :lowest, :beyond  a range of batch ids (UUIDs); :beyond is exclusive
--   :retention        BatchRetention in milliseconds
--   :limit            the maximum number of deleted rows, unless a single batch has more
--   :batches          the maximum number of deleted batches; it bounds the work, since the
--                     statement reads all rows of each batch
WITH old AS MATERIALIZED (
    -- The oldest batches, with the number of rows to delete of each.
    SELECT site_id, id, submitted_at, CASE WHEN id >= :lowest AND id < :beyond THEN 0 ELSE row_count END AS rows
    FROM batches b
    WHERE submitted_at <= svc_now() - :retention AND settled_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM batch_rows r WHERE r.site_id = b.site_id AND r.batch_id = b.id AND r.in_doubt)
    ORDER BY submitted_at LIMIT :batches FOR UPDATE SKIP LOCKED
), dropped AS MATERIALIZED (
    -- The batches to delete: the oldest one, and those after it whose sum of rows is within :limit.
    SELECT site_id, id FROM (
        SELECT site_id, id, row_number() OVER earlier AS number, sum(rows) OVER earlier AS rows FROM old
        WINDOW earlier AS (ORDER BY submitted_at, id)) o
    WHERE number = 1 OR rows <= :limit
), rows AS (
    -- Deletes the rows, except those that are left to partitions.
    DELETE FROM batch_rows r USING dropped t WHERE r.site_id = t.site_id AND r.batch_id = t.id
        AND (t.id < :lowest OR t.id >= :beyond)
), batches AS (
    -- Deletes the batches themselves.
    DELETE FROM batches b USING dropped t WHERE b.site_id = t.site_id AND b.id = t.id
)
SELECT count(*)::int FROM dropped
