-- Store.DropOldBatches deletes settled batches past their retention, with their rows: one batch, or
-- several that have at most :limit rows together. The statement skips locked batches and batches
-- with a row in doubt. It returns the number of deleted batches.
--
-- The rows of the batches from :lowest to :beyond are not deleted, and do not count. Retention
-- drops the partitions that hold them.
--
--   :lowest, :beyond  a range of batch ids (UUIDs); :beyond is exclusive
--   :retention        BatchRetention in milliseconds
--   :limit            the maximum number of deleted rows, unless a single batch has more
--   :batches          the maximum number of batches, since all rows of each are read
WITH old AS MATERIALIZED (
    -- The oldest batches, with the number of rows to delete of each.
    SELECT site_id, id, submitted_at, CASE WHEN id >= :lowest AND id < :beyond THEN 0 ELSE row_count END AS rows
    FROM batches b
    WHERE submitted_at <= svc_now() - :retention AND settled_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM batch_rows r WHERE r.site_id = b.site_id AND r.batch_id = b.id AND r.in_doubt)
    ORDER BY submitted_at LIMIT :batches FOR UPDATE SKIP LOCKED
), dropped AS MATERIALIZED (
    SELECT site_id, id FROM (
        SELECT site_id, id, row_number() OVER earlier AS number, sum(rows) OVER earlier AS rows FROM old
        WINDOW earlier AS (ORDER BY submitted_at, id)) o
    WHERE number = 1 OR rows <= :limit
), rows AS (
    DELETE FROM batch_rows r USING dropped t WHERE r.site_id = t.site_id AND r.batch_id = t.id
        AND (t.id < :lowest OR t.id >= :beyond)
), batches AS (
    DELETE FROM batches b USING dropped t WHERE b.site_id = t.site_id AND b.id = t.id
)
SELECT count(*)::int FROM dropped
