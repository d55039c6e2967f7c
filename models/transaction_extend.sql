-- Extends the lease of a claimed transaction and of its task, and returns the transaction's phase,
-- for Store.ExtendTransaction. It changes nothing and returns no row if the transaction has ended,
-- its lease has expired, another worker has taken it over, or it is held after a restore.
--
--   :site, :intent, :task, :lease   the payment intent, its task and lease token
--   :row_lease, :answer_within      RowLease and AnswerWithin, in milliseconds
WITH extended AS (
    UPDATE payment_intents p SET lease_until = statement_timestamp() + :row_lease * interval '1 ms'
    FROM (SELECT now FROM service_now) clock
    WHERE p.site_id = :site AND p.id = :intent AND p.lease_token = :lease AND p.lease_until > statement_timestamp()
      AND p.state = 'pending'
      AND p.epoch >= (SELECT held_before FROM database_epoch)
    RETURNING transaction_phase(clock.now, p.closing_as, p.started_at, :answer_within, p.epoch,
                                (SELECT cancelled_before FROM database_epoch)) AS phase
), task AS (
    -- The dispatched task, unless the worker has lost its lease: the task is then dispatched again.
    UPDATE outbox o SET redispatch_after = statement_timestamp() + :row_lease * interval '1 ms'
    WHERE o.id = :task AND o.dispatched_at IS NOT NULL AND EXISTS (SELECT FROM extended)
)
SELECT phase FROM extended
