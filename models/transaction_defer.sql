-- Ends the lease of a transaction without a final answer, and makes it due again later, for
-- Store.FinishTransaction. A transaction that is still in doubt after AnswerWithin raises an alert.
--
--   :site, :intent, :task, :lease, :key   the payment intent, its task, lease token and rail key
--   :release                              true: nothing was debited; false: it is in doubt
--   :calls                                correction of the count of debit calls
--   :answered                             true: the rail answered a call
--   :retry_after                          delay until the next attempt, in milliseconds
--   :claimed_at, :epoch                   service time and epoch of the claim
--   :alert                                kind of alert to raise, or ''
--   :answer_within, :rail_memory          AnswerWithin and RailMemory, in milliseconds
WITH present AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now FROM current_epoch(:rail_memory) e
), p AS (
    UPDATE payment_intents p SET in_doubt = NOT (:release AND present.epoch = :epoch), deferrals = p.deferrals + 1,
        attempts = p.attempts + :calls,
        called_at = CASE WHEN :answered THEN greatest(p.called_at, :claimed_at) ELSE p.called_at END,
        next_attempt_at = present.now + :retry_after, lease_token = NULL, lease_until = NULL
    FROM present
    WHERE p.site_id = :site AND p.id = :intent AND p.state = 'pending' AND p.lease_token = :lease
    RETURNING p.*
), alert AS MATERIALIZED (
    -- An alert that an operator has closed stays closed while the transaction is in doubt.
    SELECT count(raise_alert(k.kind, :key, p.organisation_id, p.site_id, '', p.trace_id))
    FROM p, present, (SELECT coalesce(nullif(:alert, ''), 'transactionInDoubt') AS kind) k
    WHERE (:alert <> '' OR p.in_doubt AND present.now >= coalesce(p.started_at, p.expires_at) + :answer_within)
      AND NOT EXISTS (SELECT FROM alerts a WHERE a.kind = k.kind AND a.subject = :key)
)
UPDATE outbox o SET available_at = p.next_attempt_at, dispatched_at = NULL, redispatch_after = NULL
FROM p, alert WHERE o.id = :task
