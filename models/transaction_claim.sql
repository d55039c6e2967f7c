-- Claims the transaction of a task's payment intent, for Store.ClaimTransaction. The transaction
-- must be due, not leased, and not held after a restore; otherwise claimed is false in the result.
-- No row is returned if the intent is not pending.
--
-- The claim puts the transaction in doubt until its worker records its end, or that nothing was
-- debited. The column in_doubt of the result is the state before the claim. A transaction of an
-- earlier epoch is in doubt too. The claim also sets the lease of the dispatched task.
--
--   :task, :lease   the task, and the lease token of the claim
--   :row_lease, :answer_within, :rail_memory
--                   RowLease, AnswerWithin and RailMemory, in milliseconds
WITH present AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now, statement_timestamp() AS server_now
        FROM current_epoch(:rail_memory) e
), t AS MATERIALIZED (
    -- The pending intent. forgotten: the rail may have forgotten the last call.
    SELECT p.*, present.now, present.server_now, present.epoch AS current_epoch,
           p.in_doubt OR p.epoch < present.epoch AS was_in_doubt,
           coalesce(p.called_at, p.created_at) + :rail_memory <= present.now AS forgotten,
           transaction_phase(present.now, p.closing_as, p.started_at, :answer_within, p.epoch,
                             present.cancelled_before) AS phase,
           p.epoch >= present.held_before AND (p.lease_until IS NULL OR p.lease_until <= present.server_now)
               AND coalesce(p.next_attempt_at, 0) <= present.now AS free
    FROM present CROSS JOIN outbox o CROSS JOIN LATERAL (
        -- LATERAL with LIMIT 1 reads the intent by its primary key. With another index, the planner
        -- could scan all pending intents.
        SELECT * FROM payment_intents x WHERE x.site_id = o.site_id AND x.id = o.subject_id LIMIT 1 FOR UPDATE
    ) p
    WHERE o.id = :task AND p.state = 'pending'
), claimed AS (
    UPDATE payment_intents p SET lease_token = :lease,
        lease_until = t.server_now + :row_lease * interval '1 ms', in_doubt = true,
        attempts = p.attempts + CASE WHEN t.phase = 'attempt' AND NOT t.was_in_doubt THEN 1 ELSE 0 END,
        called_at = CASE WHEN t.was_in_doubt THEN p.called_at ELSE t.now END
    FROM t WHERE t.free AND p.site_id = t.site_id AND p.id = t.id
    RETURNING p.id
), task AS (
    UPDATE outbox o SET redispatch_after = t.server_now + :row_lease * interval '1 ms'
    FROM t WHERE o.id = :task AND o.dispatched_at IS NOT NULL AND EXISTS (SELECT FROM claimed)
)
SELECT EXISTS (SELECT FROM claimed) AS claimed, t.site_id, t.organisation_id, t.id, t.transaction_id, t.trace_id,
       t.party, t.amount_charged, t.amount, t.currency, t.closing_as, t.phase,
       t.was_in_doubt AS in_doubt, t.forgotten, t.deferrals, t.current_epoch AS epoch, t.now AS claimed_at
FROM t
