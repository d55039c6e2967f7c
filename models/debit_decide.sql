-- Store.DecideRow corrects an unconfirmed row as an operator has decided, and posts the ledger
-- entry of a debit. It closes the alerts railConflict and railForgot of the row. It returns the
-- corrected outcome. There is no result row if the row is not unconfirmed, or has been corrected
-- already.
--
--   :site, :batch_reference, :row_reference   the row, with the id of its Site
--   :key                                      the row's rail key
--   :debited                                  whether the customer was debited
WITH b AS MATERIALIZED (
    SELECT b.site_id, b.id, b.organisation_id, b.batch_reference, b.currency, b.trace_id,
        batch_cancelled(b.cancelled_at, b.epoch, (SELECT cancelled_before FROM database_epoch)) AS cancelled,
        (SELECT now FROM service_now) AS now
    FROM batches b WHERE b.site_id = :site AND b.batch_reference = :batch_reference FOR UPDATE
), r AS (
    UPDATE batch_rows r SET in_doubt = false, next_attempt_at = NULL, lease_token = NULL, lease_until = NULL,
        corrected_outcome = CASE WHEN :debited THEN 'succeeded' WHEN b.cancelled THEN 'cancelled'
            ELSE 'timedOut' END::row_outcome
    FROM b
    WHERE r.site_id = b.site_id AND r.batch_id = b.id AND r.row_reference = :row_reference
      AND r.outcome = 'unconfirmed' AND r.corrected_outcome IS NULL
    RETURNING r.row_index, r.row_reference, r.customer_reference, r.link_id, r.amount, r.corrected_outcome
), ledger AS (
    INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference,
        row_reference, customer_reference, link_id)
    SELECT :key, b.site_id, b.now, r.amount, b.currency, b.batch_reference, r.row_reference, r.customer_reference,
        r.link_id
    FROM r, b WHERE r.corrected_outcome = 'succeeded'
), alert AS (
    UPDATE alerts SET closed_at = (SELECT now FROM b)
    WHERE kind IN ('railConflict', 'railForgot') AND subject = :key AND closed_at IS NULL AND EXISTS (SELECT FROM r)
), reported AS MATERIALIZED (
    SELECT count(announce_correction(b.organisation_id, b.site_id, b.id, r.row_index, b.trace_id)) FROM r, b
)
SELECT corrected_outcome FROM r, reported
