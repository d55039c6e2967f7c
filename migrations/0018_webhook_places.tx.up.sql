-- The places of events at the endpoints that they go to. A table of its own: waiting for an endpoint, being let go, being sent and being
-- done are short rows in small indexes, while an event, with its body and its many indexes, is written once more, when its outcome is known.
-- What webhook_events says of leases and of parking was the release before's; a later migration may drop it. While workers of both
-- releases run, an event may be sent by both.
CREATE TABLE webhook_places (
    organisation_id  uuid   NOT NULL,
    event_id         uuid   NOT NULL,
    endpoint_site_id uuid   NOT NULL,  -- of the endpoint
    site_id          uuid   NOT NULL,  -- of the event
    requested_at     bigint NOT NULL,  -- of the event's round: whoever waits longest is let go first
    task_id          uuid   NOT NULL,  -- of the event's round, in the outbox
    until            timestamptz,      -- real time. NULL: it waits for the endpoint to take more. Else the endpoint has taken it until then
    token            uuid,             -- of the worker that sends it. NULL: it waits, or is on its way to a worker
    number           int,              -- of the attempt that is being made
    url              text,             -- that it goes to
    PRIMARY KEY (organisation_id, event_id),
    CHECK ((token IS NULL) = (number IS NULL) AND (token IS NULL OR until IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX webhook_places_taken ON webhook_places (organisation_id, endpoint_site_id) WHERE until IS NOT NULL;
CREATE INDEX webhook_places_waiting ON webhook_places (organisation_id, endpoint_site_id, requested_at, event_id) WHERE until IS NULL;
CREATE INDEX webhook_places_waiting_of_site ON webhook_places (organisation_id, endpoint_site_id, site_id, requested_at, event_id)
    WHERE until IS NULL;
-- Most rows live for milliseconds: vacuum by what has come and gone, not by what is there.
ALTER TABLE webhook_places SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);

WITH parked AS (
    UPDATE webhook_events SET is_parked = false WHERE is_parked
    RETURNING organisation_id, id, endpoint_site_id, site_id, requested_at, task_id
)
INSERT INTO webhook_places (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id) SELECT * FROM parked;
