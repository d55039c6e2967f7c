-- Ends the payment intents that the CTE "due" locks and that no customer has begun to pay. An
-- intent of an earlier epoch may have been paid in a lost transaction: it becomes pending until the
-- rail has confirmed that it was not paid.
--
--   $1 status: Cancelled or Expired  $2 RailMemory
, fence AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch($2) e
)
UPDATE payment_intents p SET
    state = CASE WHEN p.epoch < f.epoch THEN 'pending' ELSE 'final' END::intent_state,
    in_doubt = p.epoch < f.epoch,
    closing_as = CASE WHEN p.epoch < f.epoch THEN $1::transaction_status END,
    transaction_status = CASE WHEN p.epoch >= f.epoch THEN $1::transaction_status END,
    final_at = CASE WHEN p.epoch >= f.epoch THEN f.now END
FROM due, fence f
WHERE p.site_id = due.site_id AND p.id = due.id AND p.state = 'created'
