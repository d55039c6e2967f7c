-- Store.SubmitBatch and Store.RetryBatch write a batch, its rows and its tasks in one statement.
-- The statement returns the batch. It writes and returns nothing if the reference is taken or the
-- Site is unknown.
--
--   :site, :batch, :batch_reference, :trace
--                                 the new batch: ids of the Site and the batch, its reference, and
--                                 the trace id of the request
--   :total_amount                 sum of :amounts
--   :fingerprint, :extras         of the request (bytea); :extras may be NULL
--   :settle_within                SettleWithin in milliseconds
--   :customer_references, :row_references, :amounts
--                                 the rows in order, one array a column; amounts in minor units
--   :links                        by row, the id of the link that the row is bound to already; the
--                                 nil UUID, or a missing element: none
--   :retry_of                     batchReference of the batch whose rows this one retries, or ''
--   :tasks, :kind, :queue         ids of the tasks in the order of their rows, kind and queue
--   :chunk_rows                   number of rows of one task; the last task may have fewer
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), b AS (
    -- If the database has lost a batch, the next one under the reference gets the same generation
    -- and rail keys.
    INSERT INTO batches (site_id, id, organisation_id, batch_reference, row_count, total_amount, currency,
                         submitted_at, settle_by, fingerprint, extras, trace_id, retry_of, generation, epoch)
    SELECT s.id, :batch, s.organisation_id, :batch_reference, cardinality(:customer_references::text[]),
           :total_amount, s.currency, clock.now, clock.now + :settle_within, :fingerprint, :extras, :trace,
           nullif(:retry_of::text, ''), 1 + coalesce((
               SELECT generation FROM batch_references
               WHERE site_id = :site AND batch_reference = :batch_reference), 0),
           (SELECT epoch FROM database_epoch)
    FROM sites s, clock WHERE s.id = :site
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
    FROM b, unnest(:customer_references::text[], :row_references::text[], :amounts::bigint[], :links::uuid[])
        WITH ORDINALITY AS v (customer_reference, row_reference, amount, link_id, n)
    LEFT JOIN customer_links l ON l.site_id = :site AND l.customer_reference = v.customer_reference
        AND l.state IN ('invited', 'linked') AND (l.state = 'linked' OR l.expires_at > (SELECT now FROM clock))
), o AS (
    INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, first_row, last_row, trace_id,
                        available_at)
    SELECT c.id, :kind, :queue, b.organisation_id, b.site_id, b.id, (c.n - 1) * :chunk_rows,
           least(c.n * :chunk_rows, b.row_count) - 1, b.trace_id, b.submitted_at
    FROM b, unnest(:tasks::uuid[]) WITH ORDINALITY AS c (id, n)
)
SELECT b.site_id, b.id, b.organisation_id, b.batch_reference, b.state, b.row_count, b.settled_count,
       b.succeeded_count, b.total_amount, b.succeeded_amount, b.currency, b.submitted_at, b.settle_by, b.settled_at,
       b.cancelled_at, b.generation, b.retry_of, b.retried_as
FROM b
