-- Store.CreateInvitation makes a new customer link, an invitation. At the same reading of the
-- clock, the statement expires an earlier invitation of the reference that is past its expiry. It
-- makes no link if the reference has an active link, or if the new expiry is out of bounds.
--
-- The one result row has the service time (now), whether a link was made, its invited_at and
-- expires_at, and the id of an expired link to announce (expired): a webhook endpoint subscribes to
-- its event. NULL: there is none.
--
--   :site, :reference, :id, :key, :trace
--                           the new link: ids of Site, link and key, the reference and trace id
--   :expires_at             the expiry in milliseconds of service time; 0: after :default_life
--   :default_life           the life of a link without a requested expiry, in milliseconds
--   :min_life, :max_life    the bounds of an expiry, in milliseconds from now
WITH clock AS MATERIALIZED (
    SELECT svc_now() AS now
), expired AS (
    UPDATE customer_links SET state = 'expired'
    WHERE site_id = :site AND customer_reference = :reference AND state = 'invited'
      AND expires_at <= (SELECT now FROM clock)
    RETURNING id
), start AS (
    -- The new link is later than all links of its reference, even if the clock has stood still or
    -- stepped back.
    SELECT greatest((SELECT now FROM clock), (
        SELECT max(invited_at) + 1 FROM customer_links WHERE site_id = :site AND customer_reference = :reference)) AS at
), made AS (
    INSERT INTO customer_links AS l (site_id, id, customer_reference, invited_at, expires_at, key_id, trace_id)
    SELECT :site, :id, :reference, at,
        coalesce(nullif(:expires_at::bigint, 0), (SELECT now FROM clock) + :default_life::bigint), :key, :trace
    FROM start
    WHERE (SELECT count(*) FROM expired) >= 0 -- makes the UPDATE run before the INSERT
      AND (:expires_at = 0
           OR :expires_at BETWEEN (SELECT now FROM clock) + :min_life::bigint
                              AND (SELECT now FROM clock) + :max_life::bigint)
    ON CONFLICT (site_id, customer_reference) WHERE state IN ('invited', 'linked') DO NOTHING
    RETURNING invited_at, expires_at
)
SELECT (SELECT now FROM clock) AS now, made.invited_at IS NOT NULL AS made, made.invited_at, made.expires_at, (
    SELECT o.id FROM expired o
    WHERE webhook_wanted((SELECT organisation_id FROM sites s WHERE s.id = :site), :site, 'customerExpired')) AS expired
FROM clock LEFT JOIN made ON true
