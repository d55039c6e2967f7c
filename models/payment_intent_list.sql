-- One page of a Site's payment intents, and whether intents lie behind it. An empty page has one
-- row, without an intent.
--
--   :site                    the Site
--   :from, :to               the range of created_at, inclusive, in milliseconds of service time
--   :ahead_at, :ahead_key    the position beyond which the page lies: created_at and id
--   :behind_at, :behind_key  the position behind which intents are looked for
--   :limit                   the largest number of intents
--   :order_id                the orderId, if FILTER selects by it
--   FILTER                   a condition on every intent p
--   PARTS, OTHERS            the intents of the page, and the condition that intents lie behind it,
--                            source by source; see intentSource in payment_intent_list_store.go
--
-- newListStatement in page.go replaces the other variables in upper case.
--
-- The page and behind come from one snapshot and one reading of the clock. Each source is an
-- ordered scan of one index that ends at the limit. Only the position and the far end of the time
-- range bound it: with a condition on the near end, the scan would begin there and not at the
-- position.
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), overdue AS MATERIALIZED (
    -- Overdue intents, which are few and selected by expiry.
    SELECT p.* FROM payment_intents p
    WHERE p.state = 'created' AND p.expires_at <= (SELECT now FROM clock) AND p.site_id = :site AND :FILTER
), page AS (
    SELECT * FROM (:PARTS) p ORDER BY p.created_at :ORDER, p.id :ORDER LIMIT :limit
)
SELECT clock.now, (:OTHERS) AS behind,
       p.site_id, p.id, p.organisation_id, p.code, p.amount, p.currency, p.order_id, p.line_items, p.return_url,
       p.qr_code_format, p.state, p.transaction_status, p.status_reason, p.created_at, p.expires_at, p.final_at,
       p.trace_id, p.transaction_id, p.discounts, p.amount_charged, p.started_at
FROM clock LEFT JOIN page p ON true
ORDER BY p.created_at DESC, p.id DESC
