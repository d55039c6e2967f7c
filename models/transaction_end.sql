-- Ends a transaction: under its lease, or with a debit that the rail reports. A result that does
-- not follow from the rail's answer counts only in the epoch of its claim. Ledger, task and alerts
-- derive from the returned row.
--
--   $1 site  $2 payment intent  $3 lease token  $4 status  $5 reason or ''  $6 calls  $7 task  $8 rail key
--   $9 from the rail  $10 epoch of the claim  $11 RailMemory
--   $12 transaction id, $13 agreement, $14 amount charged: of a payment that the database has lost
WITH fence AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch($11) e
), p AS (
    UPDATE payment_intents p SET state = 'final', transaction_status = $4::transaction_status, closing_as = NULL,
        status_reason = nullif($5, '')::row_outcome, final_at = f.now, attempts = p.attempts + $6, in_doubt = false,
        next_attempt_at = NULL, lease_token = NULL, lease_until = NULL,
        transaction_id = CASE WHEN $4 IN ('Cancelled', 'Expired') THEN NULL ELSE coalesce(p.transaction_id, $12) END,
        customer_id = CASE WHEN $4 IN ('Cancelled', 'Expired') THEN NULL ELSE coalesce(p.customer_id, '') END,
        agreement_id = CASE WHEN $4 IN ('Cancelled', 'Expired') THEN NULL ELSE coalesce(p.agreement_id, $13) END,
        amount_charged = CASE WHEN $4 IN ('Cancelled', 'Expired') THEN NULL ELSE coalesce(p.amount_charged, $14) END,
        started_at = CASE WHEN $4 IN ('Cancelled', 'Expired') THEN NULL ELSE coalesce(p.started_at, f.now) END
    FROM fence f
    WHERE p.site_id = $1 AND p.id = $2 AND p.state = 'pending' AND (p.lease_token = $3 AND ($9 OR f.epoch = $10) OR $4 = 'Settled')
    RETURNING p.*
), ledger AS (
    INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, payment_intent_id, order_id)
    SELECT $8, p.site_id, p.final_at, p.amount_charged, p.currency, p.id, p.order_id
    FROM p WHERE p.transaction_status = 'Settled' AND p.amount_charged > 0
), done AS (
    DELETE FROM outbox WHERE id = $7 AND EXISTS (SELECT FROM p)
), alert AS (
    UPDATE alerts SET closed_at = (SELECT now FROM fence)
    WHERE kind IN ('transactionInDoubt', 'railConflict', 'railForgot') AND subject = $8 AND closed_at IS NULL AND EXISTS (SELECT FROM p)
)
