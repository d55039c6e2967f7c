-- One page of a Site's payment intents, and whether intents lie behind it. Go replaces the words in
-- angle brackets.
--
--   $1 site  $2 from  $3 to  $4, $5 the position ahead  $6, $7 the position behind
--   $8 orderId, if it is a filter
--
-- Page and links come from one snapshot and one reading of the clock. Each source is an ordered
-- scan of one index that ends at the limit. The position and the far end of the range of time bound
-- it; the near end would make the scan begin there. The limit is in the text: for a parameter,
-- Postgres would expect many rows.
WITH clock AS MATERIALIZED (
    SELECT now FROM service_now
), overdue AS MATERIALIZED (
    -- Overdue intents, which are few and selected by expiry.
    SELECT p.* FROM payment_intents p
    WHERE p.state = 'created' AND p.expires_at <= (SELECT now FROM clock) AND p.site_id = $1<order filter>
), page AS (
    SELECT * FROM (<ahead sources>) p ORDER BY p.created_at <order>, p.id <order> LIMIT <limit>
)
SELECT p.site_id, p.id, p.organisation_id, coalesce(p.code, ''), coalesce(p.amount, 0), coalesce(p.currency, ''),
       coalesce(p.order_id, ''), p.line_items, coalesce(p.return_url, ''), coalesce(p.qr_code_format, ''),
       coalesce(p.state, 'created'), coalesce(p.transaction_status::text, ''), coalesce(p.status_reason::text, ''),
       coalesce(p.created_at, 0), coalesce(p.expires_at, 0), coalesce(p.final_at, 0), coalesce(p.trace_id, ''),
       p.transaction_id, coalesce(p.customer_id, ''), coalesce(p.agreement_id, ''), p.discounts,
       coalesce(p.amount_charged, 0), coalesce(p.started_at, 0),
       clock.now, (<behind sources>)
FROM clock LEFT JOIN page p ON true
ORDER BY p.created_at DESC, p.id DESC
