-- Ends payment intents that no customer has begun to pay, and returns them. An intent of an earlier
-- epoch may have been paid in a database transaction that was lost. It becomes pending until the
-- rail has confirmed that it was not paid.
--
--   :status       how the intents end: Cancelled or Expired
--   :rail_memory  RailMemory in milliseconds
--   DUE           a query that selects site_id and id of the intents and locks them. The function
--                 endUnpaidSQL in payment_intent_store.go inserts it
WITH due AS (:DUE
), present AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch(:rail_memory) e
)
UPDATE payment_intents p SET
    state = CASE WHEN p.epoch < present.epoch THEN 'pending' ELSE 'final' END::intent_state,
    in_doubt = p.epoch < present.epoch,
    closing_as = CASE WHEN p.epoch < present.epoch THEN :status::transaction_status END,
    transaction_status = CASE WHEN p.epoch >= present.epoch THEN :status::transaction_status END,
    final_at = CASE WHEN p.epoch >= present.epoch THEN present.now END
FROM due, present
WHERE p.site_id = due.site_id AND p.id = due.id AND p.state = 'created'
RETURNING p.site_id, p.id, p.organisation_id, p.code, p.amount, p.currency, p.order_id, p.line_items, p.return_url,
    p.qr_code_format, p.state, p.transaction_status, p.status_reason, p.created_at, p.expires_at, p.final_at,
    p.trace_id, p.transaction_id, p.discounts, p.amount_charged, p.started_at
