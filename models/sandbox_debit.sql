-- Debits the orders with new keys on the sandbox rail, for Store.DebitSandbox. It returns a row for
-- each order:
--
--   number          position of the order, from 1
--   down            the bank of the account is unavailable
--   lost            the answer is to be lost
--   status, reason  the new debit; NULL if the key is known or the bank is unavailable
--   same            the new debit has the agreement, amount and currency of this order: two orders
--                   may have one key
--
--   :keys, :agreements, :amounts, :currencies  the orders, one array for each column
--   :bank_down_for  how long the bank of a bankDown account is unavailable, in milliseconds
--   :slowness       how long a slow account takes to answer, in milliseconds
WITH clock AS MATERIALIZED (
    SELECT now,
           EXISTS (SELECT FROM sandbox_faults WHERE fault = 'bankDown' AND ends_at > now) AS bank_down,
           EXISTS (SELECT FROM sandbox_faults WHERE fault = 'answersLost' AND ends_at > now) AS answers_lost
    FROM (SELECT svc_now() AS now OFFSET 0) AS service
), asked AS MATERIALIZED (
    -- LATERAL with LIMIT 1 looks up each account by its primary key, so that a plan made on empty
    -- tables stays good.
    SELECT o.*, clock.now, a.behaviour,
           clock.bank_down
           OR coalesce(a.behaviour = 'bankDown' AND clock.now < a.opened_at + :bank_down_for, false) AS down,
           clock.answers_lost OR coalesce(a.behaviour = 'answerLost', false) AS lost
    FROM clock CROSS JOIN unnest(:keys::text[], :agreements::text[], :amounts::bigint[], :currencies::text[])
         WITH ORDINALITY AS o (key, agreement_id, amount, currency, number)
    LEFT JOIN LATERAL (SELECT behaviour, opened_at FROM sandbox_accounts
                       WHERE agreement_id = o.agreement_id LIMIT 1) a ON true
), made AS (
    -- Keys are sorted, so that concurrent calls with the same keys cannot deadlock.
    INSERT INTO sandbox_debits (key, agreement_id, amount, currency, status, reason, changed_at, due_at)
    SELECT key, agreement_id, amount, currency,
           CASE WHEN behaviour IN ('pays', 'bankDown', 'answerLost') THEN 'succeeded'
                WHEN behaviour = 'slow' THEN 'undecided'
                ELSE 'refused' END,
           CASE WHEN behaviour IN ('pays', 'bankDown', 'answerLost', 'slow') THEN NULL
                WHEN behaviour IN ('insufficientFunds', 'limitExceeded') THEN behaviour
                WHEN behaviour = 'declines' THEN 'declinedByCustomer'
                ELSE 'accountUnavailable' END,
           now,
           CASE WHEN behaviour = 'slow' THEN statement_timestamp() + :slowness * interval '1 millisecond' END
    FROM asked WHERE NOT down ORDER BY key, number
    ON CONFLICT (key) DO NOTHING
    RETURNING key, agreement_id, amount, currency, status, reason
)
SELECT asked.number, asked.down, asked.lost, made.status, made.reason,
       coalesce((made.agreement_id, made.amount, made.currency) =
                (asked.agreement_id, asked.amount, asked.currency), false) AS same
FROM asked LEFT JOIN made USING (key)
