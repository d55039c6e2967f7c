-- Finds the row that the request with a trace id stored, for Store.Trace: its kind, Site and id. It
-- returns no row if the request stored nothing, or belongs to another organisation.
--
-- The id of the stored row begins with the first half of the trace id. In each Site's part of a
-- table, a short range of the primary key therefore holds the row. LIMIT keeps the planner from
-- joining whole tables.
--
--   :organisation       the organisation
--   :trace              the trace id
--   :lowest, :highest   the range of ids that begin with the first half of the trace id
SELECT 'batch' AS kind, found.site_id, found.id
FROM sites s, LATERAL (
    SELECT b.site_id, b.id FROM batches b
    WHERE b.site_id = s.id AND b.id BETWEEN :lowest AND :highest AND b.trace_id = :trace
    ORDER BY b.id LIMIT 1
) found
WHERE s.organisation_id = :organisation
UNION ALL
SELECT 'paymentIntent', found.site_id, found.id
FROM sites s, LATERAL (
    SELECT p.site_id, p.id FROM payment_intents p
    WHERE p.site_id = s.id AND p.id BETWEEN :lowest AND :highest AND p.trace_id = :trace
    ORDER BY p.id LIMIT 1
) found
WHERE s.organisation_id = :organisation
UNION ALL
SELECT 'invitation', found.site_id, found.id
FROM sites s, LATERAL (
    SELECT l.site_id, l.id FROM customer_links l
    WHERE l.site_id = s.id AND l.id BETWEEN :lowest AND :highest AND l.trace_id = :trace
    ORDER BY l.id LIMIT 1
) found
WHERE s.organisation_id = :organisation
UNION ALL
SELECT 'testEvent', found.site_id, found.id
FROM (
    SELECT w.site_id, w.id FROM webhook_events w
    WHERE w.organisation_id = :organisation AND w.id BETWEEN :lowest AND :highest AND w.trace_id = :trace AND w.is_test
    ORDER BY w.id LIMIT 1
) found
LIMIT 1
