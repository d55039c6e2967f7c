-- Fills every large table with rows of 200 Sites and of the test's own Site (OWN), which is large.
-- Most work is done; the rest waits, is in flight or overdue.
CREATE OR REPLACE FUNCTION pg_temp.many(site uuid, own uuid, n int, of_own int) RETURNS int LANGUAGE sql AS
    'SELECT CASE WHEN site = own THEN of_own WHEN site >= ''b0000000-0000-7000-8000-000000000000'' THEN n ELSE 0 END';
-- An id of a time before now, as the service's ids are, so that rows spread over partitions.
CREATE OR REPLACE FUNCTION pg_temp.id_before(ago interval) RETURNS uuid LANGUAGE sql VOLATILE AS
    'SELECT (left(id_at(now() - ago)::text, 14) || right(gen_random_uuid()::text, 22))::uuid';
SET session_replication_role = replica;
INSERT INTO organisations (id, name, created_at) SELECT ('a0000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 'o', 1 FROM generate_series(1, 50) i ON CONFLICT DO NOTHING;
INSERT INTO sites (id, organisation_id, name, created_at)
SELECT ('b0000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, ('a0000000-0000-7000-8000-' || lpad((i % 50 + 1)::text, 12, '0'))::uuid, 's', 1
FROM generate_series(1, 200) i ON CONFLICT DO NOTHING;
INSERT INTO api_clients (id, organisation_id, name, scopes, created_at) SELECT gen_random_uuid(), o.id, 'c', '{}', 1
FROM organisations o, generate_series(1, 20);
INSERT INTO client_assertions (client_id, jti, expires_at) SELECT gen_random_uuid(), i::text, svc_now() + 600000
FROM generate_series(1, 20000) i;
INSERT INTO idempotency_keys (client_id, path, key, fingerprint, resource_id, created_at)
SELECT gen_random_uuid(), '/p', i::text, '', gen_random_uuid(), svc_now() FROM generate_series(1, 50000) i;
INSERT INTO customer_links (site_id, id, customer_reference, state, invited_at, expires_at, linked_at, party, key_id)
SELECT s.id, gen_random_uuid(), 'customer ' || i, CASE WHEN i % 10 = 0 THEN 'invited' WHEN i % 7 = 0 THEN 'expired' ELSE 'linked' END::link_state,
       svc_now() - i * 1000, svc_now() + CASE WHEN i < 990 THEN 600000 ELSE -i * 10 END, 1, 'sealed', gen_random_uuid()
FROM sites s, generate_series(1, pg_temp.many(s.id, 'OWN', 1000, 20000)) i;
INSERT INTO batches (site_id, id, organisation_id, batch_reference, generation, epoch, state, row_count, settled_count, succeeded_count,
    total_amount, succeeded_amount, currency, submitted_at, settle_by, settled_at, attempts_over_at, fingerprint)
SELECT s.id, pg_temp.id_before(i * interval '1 hour'), s.organisation_id, 'batch ' || i, 1, 1, CASE WHEN i % 4 = 0 THEN 'inProgress' ELSE 'settled' END::batch_state, 100,
       CASE WHEN i % 4 = 0 THEN 0 ELSE 100 END, 0, 10000, 0, 'AUD', svc_now() - i * 3600000::bigint, svc_now() + 36000000,
       CASE WHEN i % 4 = 0 THEN NULL ELSE svc_now() END, CASE WHEN i % 4 = 0 THEN NULL ELSE svc_now() END, 'f'
FROM sites s, generate_series(1, pg_temp.many(s.id, 'OWN', 12, 1000)) i;
INSERT INTO batch_references (site_id, batch_reference, generation) SELECT site_id, batch_reference, 1
FROM batches ON CONFLICT DO NOTHING;
INSERT INTO batch_rows (site_id, batch_id, row_index, amount, customer_reference, row_reference, state, outcome, settled_at)
SELECT b.site_id, b.id, i, 100, 'customer ' || i, 'row ' || i, CASE WHEN b.state = 'settled' THEN 'settled' ELSE 'pending' END::row_state,
       CASE WHEN b.state = 'settled' THEN 'insufficientFunds' END::row_outcome, b.settled_at
FROM batches b, generate_series(0, 99) i WHERE b.batch_reference LIKE 'batch %'
  AND b.batch_reference NOT LIKE '%round%';
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference, customer_reference)
SELECT 'r1_' || md5(b.id::text) || md5(i::text), b.site_id, b.submitted_at + i, 100, 'AUD', b.batch_reference, 'row ' || i, 'customer ' || i
FROM batches b, generate_series(0, 99) i WHERE b.batch_reference LIKE 'batch %'
  AND b.batch_reference NOT LIKE '%round%';
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, last_row, available_at, dispatched_at, redispatch_after)
SELECT gen_random_uuid(), k.kind, k.queue, b.organisation_id, b.site_id, b.id, 99, svc_now() - 1000,
       CASE WHEN i % 50 = 0 THEN now() END, CASE WHEN i % 50 = 0 THEN now() + interval '1 hour' END
FROM batches b, generate_series(1, 25) i, (VALUES ('debitRows', 'debits'), ('settleTransaction', 'checkout'), ('deliverWebhook', 'webhooks')) k (kind, queue)
WHERE b.batch_reference LIKE 'batch %' AND b.batch_reference NOT LIKE '%round%';
INSERT INTO payment_intents (site_id, id, organisation_id, epoch, code, state, transaction_status, amount, currency, order_id, qr_code_format, created_at,
    expires_at, final_at)
SELECT s.id, gen_random_uuid(), s.organisation_id, 1, i || ' of ' || s.id, CASE WHEN i % 20 = 0 THEN 'created' ELSE 'final' END::intent_state,
       CASE WHEN i % 20 = 0 THEN NULL ELSE 'Expired' END::transaction_status, 100, 'AUD', 'order ' || i, 'text', svc_now() - i * 1000,
       svc_now() + 600000, CASE WHEN i % 20 = 0 THEN NULL ELSE svc_now() END
FROM sites s, generate_series(1, pg_temp.many(s.id, 'OWN', 1000, 20000)) i;
INSERT INTO webhook_endpoints (organisation_id, site_id, url, created_at, updated_at, width, open_until)
SELECT s.organisation_id, s.id, 'https://example.com/', 1, 1, 8, svc_now() + 3600000 FROM sites s
WHERE s.id >= 'b0000000-0000-7000-8000-000000000000';
INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status, status, created_at, requested_at, next_attempt_at,
    task_id, trace_id, body)
SELECT s.organisation_id, intent.id, s.id, 'transactionStatus', intent.id, 'Settled',
       CASE WHEN i % 5 = 0 AND s.id <> 'OWN' THEN 'pending' ELSE 'delivered' END::webhook_event_status, svc_now() - i * 1000, svc_now(),
       CASE WHEN i % 5 = 0 AND s.id <> 'OWN' THEN svc_now() END, CASE WHEN i % 5 = 0
         AND s.id <> 'OWN' THEN gen_random_uuid() END, '', 'body'
FROM sites s, generate_series(1, pg_temp.many(s.id, 'OWN', 1000, 20000)) i,
     LATERAL (SELECT pg_temp.id_before(i * interval '28 minutes') OFFSET 0) intent (id);
INSERT INTO webhook_attempts (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms, url)
SELECT organisation_id, id, 1, site_id, 1, 1, 'u' FROM webhook_events ON CONFLICT DO NOTHING;
INSERT INTO webhook_slots (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id)
SELECT organisation_id, id, site_id, site_id, requested_at, task_id FROM webhook_events WHERE status = 'pending'
AND organisation_id >= 'a0000000-0000-7000-8000-000000000000';
INSERT INTO alerts (kind, subject, raised_at, closed_at) SELECT 'lateTruth', 'filled ' || i, 1, CASE WHEN i % 100 = 0 THEN NULL ELSE 2 END FROM generate_series(1, 20000) i;
INSERT INTO sandbox_accounts (agreement_id, behaviour, opened_at) SELECT 'filled ' || i, 'pays', 1
FROM generate_series(1, 20000) i;
INSERT INTO sandbox_debits (key, agreement_id, amount, currency, status, changed_at) SELECT rail_key, 'a', 100, 'AUD', 'succeeded',
       CASE WHEN rail_key < 'r1_8' THEN 1 ELSE recorded_at END FROM ledger_entries
ON CONFLICT DO NOTHING;
SET session_replication_role = DEFAULT;
