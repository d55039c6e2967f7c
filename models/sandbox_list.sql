-- Lists a page of the sandbox's successful debits by time and key, and the bounds of the list.
--
--   :from, :after_key  the position: debits after it follow
--   :to                the end, exclusive
--   :limit             the maximum number of debits
--   :delay             how far the list stays behind service time, in milliseconds
--   :memory            how long decided debits are kept, in milliseconds
WITH bounds AS MATERIALIZED (
    SELECT greatest(now - :memory, 0) AS complete_from, greatest(now - :delay, 0) AS complete_to
    FROM (SELECT now FROM service_now) AS clock
)
SELECT b.complete_from, b.complete_to, d.key, d.agreement_id, d.amount, d.currency, d.status, d.changed_at
FROM bounds b LEFT JOIN LATERAL (
    -- The index sandbox_debits_age has the order by time. Debits of one millisecond are sorted by
    -- key.
    SELECT s.key, s.agreement_id, s.amount, s.currency, s.status, s.changed_at FROM sandbox_debits s
    WHERE s.status = 'succeeded' AND s.changed_at >= :from AND s.changed_at < least(:to, b.complete_to)
      AND (s.changed_at > :from OR s.key > :after_key)
    ORDER BY s.changed_at, s.key LIMIT :limit) d ON true
ORDER BY d.changed_at, d.key
