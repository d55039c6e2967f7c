-- Finds batches, payment intents and customers of every Site by a partner's reference, and
-- organisations and clients by a part of their name, for Store.Search. It returns at most 10
-- organisations, 10 clients, and the 5 newest payment intents of each Site. Each Site costs a few
-- steps in an index.
--
--   :text   the reference, or the part of a name in upper or lower case
--   :most   the maximum number of hits
(SELECT 'organisation' AS kind, 'org_' || o.id AS id, o.id AS organisation_id, NULL::uuid AS site_id, o.name AS detail,
        o.created_at AS at
 FROM organisations o WHERE position(lower(:text) IN lower(o.name)) > 0 ORDER BY o.id LIMIT 10)
UNION ALL
(SELECT 'client', 'cli_' || c.id, c.organisation_id, NULL, c.name, c.created_at
 FROM api_clients c WHERE position(lower(:text) IN lower(c.name)) > 0 ORDER BY c.id LIMIT 10)
UNION ALL
(SELECT 'batch', b.batch_reference, b.organisation_id, b.site_id, b.state::text, b.submitted_at
 FROM sites s CROSS JOIN LATERAL (
     SELECT * FROM batches x WHERE x.site_id = s.id AND x.batch_reference = :text LIMIT 1) b
 LIMIT :most)
UNION ALL
(SELECT 'paymentIntent', 'pi_' || p.id, p.organisation_id, p.site_id,
        coalesce(p.transaction_status::text, p.state::text), p.created_at
 FROM sites s CROSS JOIN LATERAL (
     SELECT * FROM payment_intents x WHERE x.site_id = s.id AND x.order_id = :text
     ORDER BY x.created_at DESC, x.id DESC LIMIT 5) p
 LIMIT :most)
UNION ALL
(SELECT 'customer', l.customer_reference, s.organisation_id, l.site_id, l.state::text, l.invited_at
 FROM sites s CROSS JOIN LATERAL (
     SELECT * FROM customer_links x WHERE x.site_id = s.id AND x.customer_reference = :text
     ORDER BY x.invited_at DESC, x.id DESC LIMIT 1) l
 LIMIT :most)
LIMIT :most
