-- Expires the reference's overdue invitation and inserts a new link, at one reading of the clock.
-- It inserts nothing if the reference is active or the expiry is out of bounds. The column expired
-- is the id of the expired link, if the endpoint subscribes to customerExpired.
--
--   :site, :reference, :id, :key, :trace  the link's columns
--   :expires_at             the expiry in milliseconds of service time; 0: after :default_life
--   :default_life           the life of a link without an expiry, in milliseconds
--   :min_life, :max_life    the bounds of an expiry from now, in milliseconds
WITH clock AS MATERIALIZED (
    SELECT svc_now() AS now
), expired AS (
    UPDATE customer_links SET state = 'expired'
    WHERE site_id = :site AND customer_reference = :reference AND state = 'invited'
      AND expires_at <= (SELECT now FROM clock)
    RETURNING id
), start AS (
    -- A link is later than every earlier link of its reference, even if the clock stands still or
    -- steps back.
    SELECT greatest((SELECT now FROM clock), (
        SELECT max(invited_at) + 1 FROM customer_links WHERE site_id = :site AND customer_reference = :reference)) AS at
), made AS (
    INSERT INTO customer_links AS l (site_id, id, customer_reference, invited_at, expires_at, key_id, trace_id)
    SELECT :site, :id, :reference, at,
        coalesce(nullif(:expires_at::bigint, 0), (SELECT now FROM clock) + :default_life::bigint), :key, :trace
    FROM start
    WHERE (SELECT count(*) FROM expired) >= 0 -- expires the old link before the insert
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
