-- Logs and counts attempts of workers that have died, with an unknown outcome, and drops their
-- slots. The caller holds the locks of the events. The statement skips a slot that another
-- transaction has leased again after the caller read it and before the caller locked the event.
--
--   :organisations, :events  the events, one array for each column
--   :started                 when each attempt was due, in milliseconds of service time
WITH ended AS (
    DELETE FROM webhook_slots p
    USING unnest(:organisations::uuid[], :events::uuid[], :started::bigint[]) AS a (organisation_id, id, started_at)
    WHERE p.organisation_id = a.organisation_id AND p.event_id = a.id AND p.until <= statement_timestamp()
    RETURNING p.organisation_id, p.event_id, p.number, p.endpoint_site_id, p.url, a.started_at
), counted AS (
    UPDATE webhook_events w SET attempts = greatest(w.attempts, e.number)
    FROM ended e WHERE w.organisation_id = e.organisation_id AND w.id = e.event_id
)
INSERT INTO webhook_attempts (organisation_id, event_id, number, endpoint_site_id, started_at, duration_ms, url, error)
SELECT organisation_id, event_id, number, endpoint_site_id, started_at, 0, url,
       'interrupted on our side; its outcome is not known'
FROM ended
ON CONFLICT DO NOTHING
