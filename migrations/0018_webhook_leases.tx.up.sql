-- Who is sending an event now. A table of its own: what claims and records write are a few short rows in two small indexes, and an event,
-- with its body and its many indexes, is written once more when its outcome is known. A lease is written and removed by whoever has its
-- event locked. What webhook_events says of leases was the release before's; a later migration may drop it.
CREATE TABLE webhook_leases (
    organisation_id  uuid        NOT NULL,
    event_id         uuid        NOT NULL,
    endpoint_site_id uuid        NOT NULL,  -- of the endpoint that it is being sent to
    token            uuid        NOT NULL,  -- the worker's
    number           int         NOT NULL,  -- of the attempt
    until            timestamptz NOT NULL,  -- real time; beyond it the worker has died, and the outcome is not known
    PRIMARY KEY (organisation_id, event_id)
);
CREATE INDEX webhook_leases_endpoint ON webhook_leases (organisation_id, endpoint_site_id);
-- Its rows live for milliseconds: vacuum by what has come and gone, not by what is there.
ALTER TABLE webhook_leases SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
