-- Store.ExpireInvitations expires invitations that are past their expiry, but not the locked ones.
-- Each result row has the number of all expired invitations (expired), and the id of one of them to
-- announce: a webhook endpoint subscribes to its event. If there is none to announce, the result is
-- one row with a NULL id.
--
--   :most  the maximum number of invitations to expire
WITH due AS (
    SELECT id FROM customer_links
    WHERE state = 'invited' AND expires_at <= (SELECT now FROM service_now)
    ORDER BY expires_at LIMIT :most FOR UPDATE SKIP LOCKED
), expired AS (
    UPDATE customer_links l SET state = 'expired'
    WHERE l.id = ANY (ARRAY(SELECT id FROM due)) AND l.state = 'invited' RETURNING l.site_id, l.id
), touched AS MATERIALIZED (
    -- The Sites of the expired invitations.
    SELECT o.site_id, (SELECT s.organisation_id FROM sites s WHERE s.id = o.site_id) AS organisation_id
    FROM (SELECT DISTINCT site_id FROM expired) o
), subscribed AS MATERIALIZED (
    SELECT site_id FROM touched WHERE webhook_wanted(organisation_id, site_id, 'customerExpired')
)
SELECT (SELECT count(*) FROM expired) AS expired, o.id
FROM (SELECT) one LEFT JOIN (SELECT e.id FROM expired e JOIN subscribed USING (site_id)) o ON true
