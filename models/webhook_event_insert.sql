-- Writes a webhook event and, if an enabled endpoint takes it, the task that delivers it. It
-- returns whether the event is pending; otherwise it is undelivered. It returns no row if the event
-- exists. The task of a test is leased to the process that asks for the test, and is dispatched
-- only if that process dies.
--
--   :organisation, :event, :site, :type, :trace, :body
--                                 the columns of the event; :event is its id
--   :intent, :transaction_status  a payment intent and its final status; else the zero id and ''
--   :test, :endpoint_site         whether the event is a test, and the Site of the tested endpoint
--   :task, :kind, :queue          id, kind and queue of the task
--   :queued_lease                 QueuedLease in milliseconds
WITH endpoint AS (
    -- Whether the event's endpoint is enabled. A test also goes to a disabled endpoint.
    SELECT :test::boolean OR coalesce((
        SELECT disabled_at IS NULL FROM webhook_endpoint_of(:organisation, :site, false, NULL)), false) AS open
), e AS (
    INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status, is_test,
        status, created_at, requested_at, next_attempt_at, task_id, endpoint_site_id, trace_id, body)
    SELECT :organisation, :event, :site, :type::text::webhook_event_type,
           nullif(:intent::uuid, '00000000-0000-0000-0000-000000000000'), nullif(:transaction_status, ''), :test,
           CASE WHEN endpoint.open THEN 'pending' ELSE 'undelivered' END::webhook_event_status,
           now, now, CASE WHEN endpoint.open THEN now END, CASE WHEN endpoint.open THEN :task::uuid END,
           :endpoint_site, :trace, :body
    FROM service_now, endpoint
    ON CONFLICT (organisation_id, id) DO NOTHING
    RETURNING created_at, status = 'pending' AS pending
), task AS (
    INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at, dispatched_at,
        redispatch_after)
    SELECT :task, :kind, :queue, :organisation, :site, :event, :trace, created_at,
           CASE WHEN :test THEN statement_timestamp() END,
           CASE WHEN :test THEN statement_timestamp() + :queued_lease::bigint * interval '1 ms' END
    FROM e WHERE pending
)
SELECT pending FROM e
