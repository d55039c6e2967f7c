-- Ends the run of a task that could not claim its transaction, for Store.ParkTransaction. The task
-- becomes due at the transaction's next attempt, or after :held_retry if the transaction is held
-- after a restore. If another worker holds the transaction, the task is dispatched again at the end
-- of that worker's lease.
--
--   :task         the task
--   :held_retry   delay of work that is held after a restore, in milliseconds
UPDATE outbox o SET
    available_at = CASE WHEN w.leased THEN o.available_at
                        ELSE greatest(w.next_attempt_at, w.held_until, o.available_at) END,
    dispatched_at = CASE WHEN w.leased THEN o.dispatched_at END,
    redispatch_after = CASE WHEN w.leased AND o.dispatched_at IS NOT NULL THEN w.lease_until END
FROM (
    SELECT t.id, p.next_attempt_at, p.lease_until, coalesce(p.lease_until > statement_timestamp(), false) AS leased,
           CASE WHEN p.epoch < (SELECT held_before FROM database_epoch)
                THEN (SELECT now FROM service_now) + :held_retry END AS held_until
    FROM outbox t CROSS JOIN LATERAL (
        SELECT * FROM payment_intents x WHERE x.site_id = t.site_id AND x.id = t.subject_id LIMIT 1) p
    WHERE t.id = :task) w
WHERE o.id = w.id
