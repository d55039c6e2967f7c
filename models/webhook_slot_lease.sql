-- Leases delivery slots of events to workers, and returns the tokens of the leases that it
-- acquired. It skips slots that are leased. The caller holds the locks of the events.
--
--   :organisations, :events, :sites, :requested
--                              the events, with their Sites and RequestedAt, one array for each
--                              column
--   :endpoints                 the Sites of their endpoints
--   :tasks                     their tasks
--   :leases, :numbers, :urls   the lease token, number and URL of each attempt
--   :webhook_lease             WebhookLease in milliseconds
INSERT INTO webhook_slots AS p (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id, token,
    number, url, until)
SELECT t.*, statement_timestamp() + :webhook_lease * interval '1 ms'
FROM unnest(:organisations::uuid[], :events::uuid[], :endpoints::uuid[], :sites::uuid[], :requested::bigint[],
    :tasks::uuid[], :leases::uuid[], :numbers::int[], :urls::text[]) AS t
ON CONFLICT (organisation_id, event_id) DO UPDATE SET endpoint_site_id = excluded.endpoint_site_id,
    requested_at = excluded.requested_at, task_id = excluded.task_id, token = excluded.token, number = excluded.number,
    url = excluded.url, until = excluded.until
WHERE p.token IS NULL
RETURNING token
