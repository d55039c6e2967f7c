-- Finds what the request with a trace id stored, for Store.Search. It reads as trace_find.sql does,
-- but in every organisation, and returns search hits: at most 5.
--
--   :trace              the trace id
--   :lowest, :highest   the range of ids that begin with the first half of the trace id
SELECT 'batch' AS kind, b.batch_reference AS id, b.organisation_id, b.site_id, b.state::text AS detail,
       b.submitted_at AS at
FROM sites s CROSS JOIN LATERAL (
    SELECT * FROM batches x WHERE x.site_id = s.id AND x.id BETWEEN :lowest AND :highest AND x.trace_id = :trace
    ORDER BY x.id LIMIT 1) b
UNION ALL
SELECT 'paymentIntent', 'pi_' || p.id, p.organisation_id, p.site_id,
       coalesce(p.transaction_status::text, p.state::text), p.created_at
FROM sites s CROSS JOIN LATERAL (
    SELECT * FROM payment_intents x WHERE x.site_id = s.id AND x.id BETWEEN :lowest AND :highest AND x.trace_id = :trace
    ORDER BY x.id LIMIT 1) p
UNION ALL
SELECT 'customer', l.customer_reference, s.organisation_id, l.site_id, l.state::text, l.invited_at
FROM sites s CROSS JOIN LATERAL (
    SELECT * FROM customer_links x WHERE x.site_id = s.id AND x.id BETWEEN :lowest AND :highest AND x.trace_id = :trace
    ORDER BY x.id LIMIT 1) l
UNION ALL
SELECT 'webhookEvent', 'evt_' || e.id, e.organisation_id, e.site_id, e.type || ', test', e.created_at
FROM organisations o CROSS JOIN LATERAL (
    SELECT * FROM webhook_events x
    WHERE x.organisation_id = o.id AND x.id BETWEEN :lowest AND :highest AND x.trace_id = :trace AND x.is_test
    ORDER BY x.id LIMIT 1) e
LIMIT 5
