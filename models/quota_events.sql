-- Counts an organisation's webhook events, and its payment intents that are to end in one.
--
--   $1 organisation  $2 most to count of either
SELECT (SELECT count(*) FROM (
            SELECT FROM webhook_events w WHERE w.organisation_id = $1 LIMIT $2
        ) events),
       (SELECT count(*) FROM (
            SELECT FROM sites s, LATERAL (
                SELECT FROM payment_intents p WHERE p.site_id = s.id AND p.state IN ('created', 'pending') LIMIT $2
            ) p
            WHERE s.organisation_id = $1 LIMIT $2
        ) intents)
