-- Counts an organisation's webhook events and, in a second column, its open payment intents. The
-- quota of events uses both.
--
--   :organisation  the organisation
--   :most          the number at which each count stops
SELECT (SELECT count(*) FROM (
            SELECT FROM webhook_events w WHERE w.organisation_id = :organisation LIMIT :most
        ) events),
       (SELECT count(*) FROM (
            SELECT FROM sites s, LATERAL (
                SELECT FROM payment_intents p WHERE p.site_id = s.id AND p.state IN ('created', 'pending') LIMIT :most
            ) p
            WHERE s.organisation_id = :organisation LIMIT :most
        ) intents)
