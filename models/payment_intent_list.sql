-- Reads one page of a Site's payment intents for Store.ListPaymentIntents, newest first. Every row
-- also holds the service time, and whether intents lie behind the page. An empty page is one row
-- without an intent.
--
--   :site                    the Site
--   :from, :to               the range of created_at, inclusive, in milliseconds of service time
--   :ahead_at, :ahead_key    where the scan for the page starts: a created_at and an id
--   :behind_at, :behind_key  where the scan for intents behind the page starts
--   :limit                   one more than the page holds, to show whether another page follows
--   :order_id                the orderId, if FILTER selects by it
--   FILTER                   a condition on every intent p
--   PARTS                    the union of the page's intents from each source
--   OTHERS                   the condition that a source has intents behind the page
--
-- payment_intent_list_store.go composes PARTS and OTHERS; see intentSource there. newListStatement
-- in page.go replaces the other variables in upper case.
--
-- Each source is an ordered scan of one index that ends at the limit. Only the position and the far
-- end of the time range bound it: with a condition on the near end, the scan would begin there and
-- not at the position.
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), overdue AS MATERIALIZED (
    -- Intents past their expiry that no statement has ended yet. They are few, so no ordered scan
    -- is needed.
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
