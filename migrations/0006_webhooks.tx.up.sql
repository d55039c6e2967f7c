-- Webhooks: endpoints, secrets, events, the leases of their deliveries, and attempts.

CREATE TYPE webhook_event_type AS ENUM ('transactionStatus', 'batchSettled', 'rowCorrected', 'customerLinked',
    'customerRevoked', 'customerExpired');
CREATE TYPE webhook_event_status AS ENUM ('pending', 'delivered', 'failed', 'undelivered');

-- Where an organisation's events go: its default (no Site: the nil UUID) and overrides for single Sites. The breaker is
-- here, and so the whole fleet's.
CREATE TABLE webhook_endpoints (
    organisation_id uuid   NOT NULL REFERENCES organisations,
    site_id         uuid   NOT NULL,
    url             text   NOT NULL,
    events          webhook_event_type[] NOT NULL DEFAULT '{transactionStatus}',  -- that it asks for
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    disabled_at     bigint,
    failures        int    NOT NULL DEFAULT 0,  -- in a row
    open_until      bigint,                     -- nothing is sent before, and then one probe at a time
    openings        int    NOT NULL DEFAULT 0,  -- since deliveries last went at full width
    width           int    NOT NULL,            -- deliveries at once
    gone_since      bigint,                     -- the first 410 of an unbroken row
    PRIMARY KEY (organisation_id, site_id),
    CHECK ('transactionStatus' = ANY (events))
) WITH (fillfactor = 50);

-- webhook_wanted reports whether the endpoint that applies to a Site now takes events and asks for this type. The
-- statement that changes a state calls it for each event that it may cause, so that no event is written unasked.
CREATE FUNCTION webhook_wanted(organisation uuid, site uuid, type webhook_event_type) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((
        SELECT w.disabled_at IS NULL AND webhook_wanted.type = ANY (w.events) FROM webhook_endpoints w
        WHERE w.organisation_id = organisation AND w.site_id IN (site, '00000000-0000-0000-0000-000000000000')
        ORDER BY w.site_id DESC LIMIT 1), false);
END $$;

-- An organisation's secrets, sealed under the master key. All that have not retired sign; the newest active one also
-- makes x-svc-signature.
CREATE TABLE webhook_secrets (
    organisation_id uuid   NOT NULL REFERENCES organisations,
    id              uuid   NOT NULL,
    sealed          bytea  NOT NULL,
    created_at      bigint NOT NULL,
    active_at       bigint NOT NULL,
    retired_at      bigint,
    PRIMARY KEY (organisation_id, id)
);

-- One row an event. The id derives from what the event tells, so that a state that is reported again after a loss has
-- the id of the first report. body is what every attempt sends.
CREATE TABLE webhook_events (
    organisation_id    uuid                 NOT NULL,
    id                 uuid                 NOT NULL,
    site_id            uuid                 NOT NULL,
    type               webhook_event_type   NOT NULL,
    payment_intent_id  uuid,                                     -- of transactionStatus, and its final status
    transaction_status text,
    is_test            boolean              NOT NULL DEFAULT false,
    endpoint_site_id   uuid,                                     -- of a test: of the endpoint that is tested
    status             webhook_event_status NOT NULL,
    attempts           int                  NOT NULL DEFAULT 0,  -- in all
    round              int                  NOT NULL DEFAULT 1,  -- one more with every redelivery
    failures           int                  NOT NULL DEFAULT 0,  -- in this round
    created_at         bigint               NOT NULL,
    requested_at       bigint               NOT NULL,            -- when this round began
    requested_in       xid8                 NOT NULL DEFAULT pg_current_xact_id(),  -- in which transaction it began
    next_attempt_at    bigint,                                   -- while pending
    delivered_at       bigint,
    task_id            uuid,                                     -- of this round, in the outbox
    trace_id           text                 NOT NULL,
    body               bytea                NOT NULL,
    CHECK ((type = 'transactionStatus') = (payment_intent_id IS NOT NULL)),
    CHECK ((payment_intent_id IS NULL) = (transaction_status IS NULL)),
    CHECK ((status = 'pending') = (next_attempt_at IS NOT NULL)),
    CHECK ((status = 'pending') = (task_id IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);
ALTER TABLE webhook_events ALTER body SET STORAGE EXTERNAL;  -- read as often as written, and small
-- One final status, one event.
CREATE UNIQUE INDEX webhook_events_intent ON webhook_events (organisation_id, payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;
CREATE INDEX webhook_events_list ON webhook_events (organisation_id, created_at DESC, id DESC);
CREATE INDEX webhook_events_list_by_status ON webhook_events (organisation_id, status, created_at DESC, id DESC);
-- Streams follow the order of transactions, which is complete below the oldest one that runs.
CREATE INDEX webhook_events_requested ON webhook_events (organisation_id, requested_in, id);
CREATE INDEX webhook_events_age ON webhook_events (created_at);
-- The primary key comes last: among indexes that look alike, as they do while a table is small, the planner takes the
-- youngest.
ALTER TABLE webhook_events ADD PRIMARY KEY (organisation_id, id);

-- The slots of events at their endpoints, in a table of their own: parking, releasing, leasing and ending an event change
-- short rows in small indexes. The event itself, with its body and its many indexes, is written once more, when its
-- outcome is known.
CREATE TABLE webhook_slots (
    organisation_id  uuid   NOT NULL,
    event_id         uuid   NOT NULL,
    endpoint_site_id uuid   NOT NULL,  -- of the endpoint
    site_id          uuid   NOT NULL,  -- of the event
    requested_at     bigint NOT NULL,  -- of the event's round: the oldest is released first
    task_id          uuid   NOT NULL,  -- of the event's round, in the outbox
    until            timestamptz,      -- NULL: parked. Else released or leased until then, and part of the endpoint's load
    token            uuid,             -- of the lease. NULL: parked or released
    number           int,              -- of the leased attempt
    url              text,             -- of the leased attempt
    CHECK ((token IS NULL) = (number IS NULL) AND (token IS NULL OR until IS NOT NULL))
) WITH (fillfactor = 70,
    -- Most rows live for milliseconds: vacuum by what has come and gone, not by what is there.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);
CREATE INDEX webhook_slots_taken ON webhook_slots (organisation_id, endpoint_site_id) WHERE until IS NOT NULL;
CREATE INDEX webhook_slots_parked ON webhook_slots (organisation_id, endpoint_site_id, requested_at, event_id) WHERE until IS NULL;
CREATE INDEX webhook_slots_parked_of_site ON webhook_slots (organisation_id, endpoint_site_id, site_id, requested_at, event_id)
    WHERE until IS NULL;
ALTER TABLE webhook_slots ADD PRIMARY KEY (organisation_id, event_id);

CREATE TABLE webhook_attempts (
    organisation_id  uuid   NOT NULL,
    event_id         uuid   NOT NULL,
    number           int    NOT NULL,
    endpoint_site_id uuid   NOT NULL,
    started_at       bigint NOT NULL,
    duration_ms      int    NOT NULL,
    status_code      int,
    url              text   NOT NULL,
    address          text   NOT NULL DEFAULT '',  -- that was dialled
    error            text   NOT NULL DEFAULT '',
    response_head    bytea  NOT NULL DEFAULT '',  -- status line, headers and the beginning of the body
    PRIMARY KEY (organisation_id, event_id, number),
    FOREIGN KEY (organisation_id, event_id) REFERENCES webhook_events ON DELETE CASCADE
);

-- A batch that settles, by whichever statement, leaves a task that tells the partner, if the endpoint asks for it.
CREATE FUNCTION announce_settled_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF webhook_wanted(NEW.organisation_id, NEW.site_id, 'batchSettled') THEN
        INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
        VALUES (gen_random_uuid(), 'announceBatch', 'webhooks', NEW.organisation_id, NEW.site_id, NEW.id, NEW.trace_id, NEW.settled_at);
    END IF;
    RETURN NULL;
END $$;
-- announce_correction leaves a task that tells the partner of a row's corrected outcome, if the endpoint asks for it.
CREATE FUNCTION announce_correction(organisation uuid, site uuid, batch uuid, row_index int, trace_id text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF webhook_wanted(organisation, site, 'rowCorrected') THEN
        INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, first_row, last_row, trace_id, available_at)
        VALUES (gen_random_uuid(), 'announceRow', 'webhooks', organisation, site, batch, row_index, row_index, trace_id, svc_now());
    END IF;
END $$;

CREATE TRIGGER batches_settle AFTER UPDATE ON batches
    FOR EACH ROW WHEN (OLD.settled_at IS NULL AND NEW.settled_at IS NOT NULL) EXECUTE FUNCTION announce_settled_batch();
