-- Lists the webhook endpoints with parked events, for Store.ReleaseWebhooks. It takes one step in
-- an index for each endpoint.
WITH RECURSIVE parked (organisation_id, site_id) AS (
    (SELECT organisation_id, endpoint_site_id FROM webhook_slots WHERE until IS NULL ORDER BY 1, 2 LIMIT 1)
    UNION ALL
    SELECT n.organisation_id, n.endpoint_site_id FROM parked p CROSS JOIN LATERAL (
        SELECT w.organisation_id, w.endpoint_site_id FROM webhook_slots w
        WHERE w.until IS NULL AND (w.organisation_id, w.endpoint_site_id) > (p.organisation_id, p.site_id)
        ORDER BY 1, 2 LIMIT 1) n
)
SELECT organisation_id, site_id FROM parked
