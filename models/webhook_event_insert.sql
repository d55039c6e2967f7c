-- Writes an event and, if there is an endpoint that takes events, the task that delivers it. The
-- task of a test is leased to the process that asks for the test, and goes out only if that process
-- dies. No row: the event exists.
--
--   $1 organisation  $2 event  $3 site  $4 type  $5 payment intent, or the zero id
--   $6 its final status  $7 is a test  $8 task  $9 of a test: whose endpoint is tested
--   $10 trace id  $11 body  $12 kind and $13 queue of the task
--   $14 QueuedLease in milliseconds
WITH endpoint AS (
    -- of the Site, else the default
    SELECT $7::boolean OR coalesce((
        SELECT disabled_at IS NULL FROM webhook_endpoints
        WHERE organisation_id = $1 AND site_id IN ($3, '00000000-0000-0000-0000-000000000000')
        ORDER BY site_id DESC LIMIT 1), false) AS open
), e AS (
    INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status, is_test, status,
        created_at, requested_at, next_attempt_at, task_id, endpoint_site_id, trace_id, body)
    SELECT $1, $2, $3, $4::text::webhook_event_type, nullif($5::uuid, '00000000-0000-0000-0000-000000000000'), nullif($6, ''), $7,
           CASE WHEN endpoint.open THEN 'pending' ELSE 'undelivered' END::webhook_event_status,
           now, now, CASE WHEN endpoint.open THEN now END, CASE WHEN endpoint.open THEN $8::uuid END, $9, $10, $11
    FROM service_now, endpoint
    ON CONFLICT (organisation_id, id) DO NOTHING
    RETURNING created_at, status = 'pending' AS pending
), task AS (
    INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at, dispatched_at, redispatch_after)
    SELECT $8, $12, $13, $1, $3, $2, $10, created_at, CASE WHEN $7 THEN statement_timestamp() END,
           CASE WHEN $7 THEN statement_timestamp() + $14::bigint * interval '1 ms' END
    FROM e WHERE pending
)
SELECT pending FROM e
