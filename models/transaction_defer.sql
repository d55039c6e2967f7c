-- Releases a transaction without a final answer, for a later attempt. A transaction that even a
-- cancellation cannot end in time raises an alert.
--
--   $1 site  $2 payment intent  $3 lease token  $4 release  $5 calls  $6 retry after, ms  $7 task  $8 rail key
--   $9 AnswerWithin, ms  $10 called: the rail answered  $11 service time of the claim  $12 alert kind or ''
--   $13 epoch of the claim  $14 RailMemory
WITH fence AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch($14) e
), p AS (
    UPDATE payment_intents p SET in_doubt = NOT ($4 AND f.epoch = $13), deferrals = p.deferrals + 1, attempts = p.attempts + $5,
        called_at = CASE WHEN $10 THEN greatest(p.called_at, $11) ELSE p.called_at END,
        next_attempt_at = f.now + $6, lease_token = NULL, lease_until = NULL
    FROM fence f
    WHERE p.site_id = $1 AND p.id = $2 AND p.state = 'pending' AND p.lease_token = $3
    RETURNING p.*
), alert AS MATERIALIZED (
    -- An alert that an operator has closed stays closed while the transaction is in doubt.
    SELECT count(raise_alert(k.kind, $8, p.organisation_id, p.site_id, '', p.trace_id))
    FROM p, fence f, (SELECT coalesce(nullif($12, ''), 'transactionInDoubt') AS kind) k
    WHERE ($12 <> '' OR p.in_doubt AND f.now >= coalesce(p.started_at, p.expires_at) + $9)
      AND NOT EXISTS (SELECT FROM alerts a WHERE a.kind = k.kind AND a.subject = $8)
)
UPDATE outbox o SET available_at = p.next_attempt_at, dispatched_at = NULL, redispatch_after = NULL
FROM p, alert WHERE o.id = $7
