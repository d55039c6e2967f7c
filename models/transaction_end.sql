-- Ends a pending transaction and returns its payment intent, for Store.FinishTransaction and
-- Store.DecidePayment. It also writes the ledger entry, deletes the task and closes alerts.
-- DecidePayment names no task: the next run of the task finds nothing to do. The statement does
-- nothing and returns no row unless the caller holds the lease, or the rail reports that it has
-- debited this transaction. A status that does not follow from the rail's answer counts only in the
-- epoch of its claim.
--
--   :site, :intent, :task, :lease, :key   the payment intent, its task, lease token and rail key
--   :status, :reason                      final status; reason of a refusal, or ''
--   :calls                                correction of the count of debit calls
--   :from_rail                            true: the status follows from the rail's answer
--   :debited                              true: the status is Settled, and the charge is not 0
--   :epoch                                epoch of the claim
--   :transaction                          id of the transaction
--   :party, :charge                       for a payment that the database has lost: its sealed
--                                         party, and the debited amount in minor units
--   :rail_memory                          RailMemory in milliseconds
WITH present AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch(:rail_memory) e
), p AS (
    UPDATE payment_intents p SET state = 'final', transaction_status = :status::transaction_status,
        status_reason = nullif(:reason, '')::row_outcome, final_at = present.now, attempts = p.attempts + :calls,
        closing_as = NULL, in_doubt = false, next_attempt_at = NULL, lease_token = NULL, lease_until = NULL,
        transaction_id = CASE WHEN :status IN ('Cancelled', 'Expired') THEN NULL
            ELSE coalesce(p.transaction_id, :transaction) END,
        party = CASE WHEN :status IN ('Cancelled', 'Expired') THEN NULL ELSE coalesce(p.party, :party) END,
        amount_charged = CASE WHEN :status IN ('Cancelled', 'Expired') THEN NULL
            ELSE coalesce(p.amount_charged, :charge) END,
        started_at = CASE WHEN :status IN ('Cancelled', 'Expired') THEN NULL
            ELSE coalesce(p.started_at, present.now) END
    FROM present
    WHERE p.site_id = :site AND p.id = :intent AND p.state = 'pending'
      AND (p.lease_token = :lease AND (:from_rail OR present.epoch = :epoch)
           OR :debited AND coalesce(p.transaction_id, :transaction) = :transaction)
    RETURNING p.*
), ledger AS (
    INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, payment_intent_id, order_id)
    SELECT :key, p.site_id, p.final_at, p.amount_charged, p.currency, p.id, p.order_id
    FROM p WHERE p.transaction_status = 'Settled' AND p.amount_charged > 0
), done AS (
    DELETE FROM outbox WHERE id = :task AND EXISTS (SELECT FROM p)
), alert AS (
    UPDATE alerts SET closed_at = (SELECT now FROM present)
    WHERE kind IN ('transactionInDoubt', 'railConflict', 'railForgot') AND subject = :key
        AND closed_at IS NULL AND EXISTS (SELECT FROM p)
)
SELECT p.site_id, p.id, p.organisation_id, p.code, p.amount, p.currency, p.order_id, p.line_items, p.return_url,
       p.qr_code_format, p.state, p.transaction_status, p.status_reason, p.created_at, p.expires_at, p.final_at,
       p.trace_id, p.transaction_id, p.discounts, p.amount_charged, p.started_at
FROM p
