-- Writes a batch, its rows and its tasks in one statement, or nothing if the reference is taken.
--
--   $1 site  $2 batch  $3 batchReference  $4 total amount  $5 SettleWithin, ms  $6 fingerprint  $7 extras or NULL  $8 trace
--   $9 customerReferences  $10 rowReferences  $11 amounts  $12 task ids  $13 task kind  $14 queue  $15 rows of a task
--   $16 tasks in flight of one organisation at most  $17 of the queue at most  $18 ClaimLease, ms
--   $19 batchReference of the batch whose rows this one retries, or ''
--   $20 links that rows are bound to already; the nil UUID, or a shorter list: none
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), b AS (
    -- After a loss of the database, a lost generation is assigned again, with the same rail keys.
    INSERT INTO batches (site_id, id, organisation_id, batch_reference, row_count, total_amount, currency, submitted_at,
                         settle_by, fingerprint, extras, trace_id, retry_of, generation, epoch)
    SELECT s.id, $2, s.organisation_id, $3, cardinality($9::text[]), $4, s.currency, clock.now, clock.now + $5, $6, $7, $8,
           nullif($19::text, ''),
           coalesce((SELECT generation FROM batch_references WHERE site_id = $1 AND batch_reference = $3), 0) + 1,
           (SELECT epoch FROM database_epoch)
    FROM sites s, clock WHERE s.id = $1
    ON CONFLICT (site_id, batch_reference) DO NOTHING
    RETURNING *
), used AS (
    INSERT INTO batch_references AS u (site_id, batch_reference, generation)
    SELECT site_id, batch_reference, generation FROM b
    ON CONFLICT (site_id, batch_reference) DO UPDATE SET generation = excluded.generation
), r AS (
    -- A row without a link is bound to the active link of its reference.
    INSERT INTO batch_rows (site_id, batch_id, row_index, customer_reference, row_reference, amount, link_id)
    SELECT b.site_id, b.id, v.n - 1, v.customer_reference, v.row_reference, v.amount,
           coalesce(nullif(v.link_id, '00000000-0000-0000-0000-000000000000'), l.id)
    FROM b, unnest($9::text[], $10::text[], $11::bigint[], $20::uuid[]) WITH ORDINALITY
        AS v (customer_reference, row_reference, amount, link_id, n)
    LEFT JOIN customer_links l ON l.site_id = $1 AND l.customer_reference = v.customer_reference
        AND l.state IN ('invited', 'linked') AND (l.state = 'linked' OR l.expires_at > (SELECT now FROM clock))
), room AS MATERIALIZED (
    -- the number of tasks that the caller may dispatch at once
    SELECT CASE WHEN $16::int = 0 THEN 0 ELSE greatest(0, least(
        $16::int - (SELECT count(*) FROM outbox f WHERE f.queue = $14 AND f.organisation_id = b.organisation_id
                    AND f.dispatched_at IS NOT NULL AND f.available_at <= b.submitted_at),
        $17::int - (SELECT count(*) FROM outbox f WHERE f.queue = $14
                    AND f.dispatched_at IS NOT NULL AND f.available_at <= b.submitted_at))) END AS tasks
    FROM b
), o AS (
    -- Tasks within the free capacity are inserted as claimed, which spares a statement and a second
    -- row version.
    INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, first_row, last_row, trace_id, available_at,
                        epoch, dispatched_at, redispatch_after)
    SELECT c.id, $13, $14, b.organisation_id, b.site_id, b.id, (c.n - 1) * $15, least(c.n * $15, b.row_count) - 1,
           b.trace_id, b.submitted_at, CASE WHEN claimed.yes THEN 1 ELSE 0 END, CASE WHEN claimed.yes THEN claimed.at END,
           CASE WHEN claimed.yes THEN claimed.at + $18::bigint * interval '1 ms' END
    FROM b, room, unnest($12::uuid[]) WITH ORDINALITY AS c (id, n),
         LATERAL (SELECT c.n <= room.tasks AS yes, statement_timestamp() AS at) claimed
)
SELECT b.site_id, b.id, b.organisation_id, b.batch_reference, b.state, b.row_count, b.settled_count, b.succeeded_count,
       b.total_amount, b.succeeded_amount, b.currency, b.submitted_at, b.settle_by, coalesce(b.settled_at, 0),
       coalesce(b.cancelled_at, 0), b.generation, coalesce(b.retry_of, ''), coalesce(b.retried_as, ''), room.tasks
FROM b, room
