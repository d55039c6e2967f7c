-- Reads how busy webhook endpoints are: the number of slots that occupy capacity, and the parked
-- event that was requested first, with the time of the request.
--
--   :organisations, :sites  the endpoints, one array for each column
SELECT k.organisation_id, k.site_id,
       -- ORDER BY makes the planner use the index webhook_slots_taken. While the table is small,
       -- the primary key looks as cheap, but reads all slots of the organisation. The lower bound
       -- of until skips entries of expired slots. During a long transaction, vacuum cannot remove
       -- them.
       (SELECT count(*) FROM (
            SELECT FROM webhook_slots x
            WHERE x.organisation_id = k.organisation_id AND x.endpoint_site_id = k.site_id
              AND x.until IS NOT NULL AND x.until > statement_timestamp()
            ORDER BY x.until) taken) AS in_flight,
       p.requested_at AS parked_at, p.event_id AS parked_event
FROM unnest(:organisations::uuid[], :sites::uuid[]) AS k (organisation_id, site_id)
LEFT JOIN LATERAL (
    SELECT x.requested_at, x.event_id FROM webhook_slots x
    WHERE x.organisation_id = k.organisation_id AND x.endpoint_site_id = k.site_id AND x.until IS NULL
    ORDER BY x.requested_at, x.event_id LIMIT 1
) p ON true
