-- Reads ledger entries of a period for Store.LedgerBetween, in the order of Site, time and rail
-- key, each with the sealed party that was debited.
--
--   :from, :to   the period of recorded_at in milliseconds: from inclusive, to exclusive
--   :after_site, :after_at, :after_key
--                a position in that order: the statement reads the entries after it
--   :limit       the maximum number of entries
WITH page AS MATERIALIZED (
    -- One range of the index ledger_entries_site for each Site, until the page is full.
    SELECT e.* FROM (SELECT id FROM sites WHERE id >= :after_site ORDER BY id) AS s
    CROSS JOIN LATERAL (
        SELECT l.* FROM ledger_entries l
        WHERE l.site_id = s.id AND l.recorded_at < :to
          AND l.recorded_at >= CASE WHEN s.id = :after_site THEN greatest(:from::bigint, :after_at::bigint)
                                   ELSE :from::bigint END
          AND (s.id > :after_site OR l.recorded_at > :after_at OR l.rail_key > :after_key)
        ORDER BY l.site_id, l.recorded_at, l.rail_key LIMIT :limit) AS e
    ORDER BY s.id, e.recorded_at, e.rail_key LIMIT :limit
)
SELECT p.rail_key, p.site_id, p.recorded_at, p.amount, p.currency, p.batch_reference, p.row_reference,
       p.payment_intent_id, p.link_id, c.party AS link_party, i.party AS intent_party
FROM page p
LEFT JOIN customer_links c ON c.site_id = p.site_id AND c.id = p.link_id
LEFT JOIN payment_intents i ON i.site_id = p.site_id AND i.id = p.payment_intent_id
ORDER BY p.site_id, p.recorded_at, p.rail_key
