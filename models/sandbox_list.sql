-- Lists a page of the sandbox's successful debits by time and key, for Store.ListSandbox. Every row
-- repeats complete_from and complete_to, the bounds of the list. An empty page is one row without a
-- debit.
--
--   :from, :to         the range of changed_at: from inclusive, to exclusive
--   :after_key         leaves out debits at :from up to this key; '': none
--   :limit             the maximum number of debits
--   :delay             how far the list stays behind service time, in milliseconds
--   :memory            how long decided debits are kept, in milliseconds
WITH bounds AS MATERIALIZED (
    SELECT greatest(now - :memory, 0) AS complete_from, greatest(now - :delay, 0) AS complete_to
    FROM (SELECT now FROM service_now) AS clock
)
SELECT b.complete_from, b.complete_to, d.key, d.agreement_id, d.amount, d.currency, d.status, d.changed_at
FROM bounds b LEFT JOIN LATERAL (
    -- The index sandbox_debits_age gives the order by time. Only debits of one millisecond remain
    -- to be sorted by key.
    SELECT s.key, s.agreement_id, s.amount, s.currency, s.status, s.changed_at FROM sandbox_debits s
    WHERE s.status = 'succeeded' AND s.changed_at >= :from AND s.changed_at < least(:to, b.complete_to)
      AND (s.changed_at > :from OR s.key > :after_key)
    ORDER BY s.changed_at, s.key LIMIT :limit) d ON true
ORDER BY d.changed_at, d.key
