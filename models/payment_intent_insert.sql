-- Inserts payment intents for Store.CreatePaymentIntent, one for each element of the arrays. It
-- returns the columns of each inserted intent that only Postgres knows. An unknown Site or an
-- expiry out of bounds prevents the insertion of its intent.
--
--   :sites, :ids, :codes, :amounts, :orders, :lines, :formats, :expiries, :traces, :returns
--                          the intents, one array for each column. Amounts are in minor units. In
--                          :orders and :returns, '' is none. In :lines, NULL is none. :expiries are
--                          in milliseconds of service time; 0 is the default
--   :default_life          the life of an intent without an expiry, in milliseconds
--   :min_life, :max_life   the least and the greatest time from now to an expiry, in milliseconds
INSERT INTO payment_intents AS p (site_id, id, organisation_id, epoch, code, amount, currency, order_id, line_items,
    qr_code_format, created_at, expires_at, trace_id, return_url)
SELECT s.id, n.id, s.organisation_id, (SELECT epoch FROM database_epoch), n.code, n.amount, s.currency,
    nullif(n.order_id, ''), n.line_items::jsonb, n.qr_code_format, now,
    coalesce(nullif(n.expires_at, 0), now + :default_life::bigint), n.trace_id, nullif(n.return_url, '')
FROM unnest(:sites::uuid[], :ids::uuid[], :codes::text[], :amounts::bigint[], :orders::text[], :lines::text[],
        :formats::text[], :expiries::bigint[], :traces::text[], :returns::text[])
    AS n (site_id, id, code, amount, order_id, line_items, qr_code_format, expires_at, trace_id, return_url)
JOIN sites s ON s.id = n.site_id CROSS JOIN service_now
WHERE n.expires_at = 0 OR n.expires_at BETWEEN now + :min_life::bigint AND now + :max_life::bigint
RETURNING p.id, p.organisation_id, p.currency, p.created_at, p.expires_at
