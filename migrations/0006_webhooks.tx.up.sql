-- Webhooks: endpoints, secrets, events, delivery slots and attempts.

CREATE TYPE webhook_event_type AS ENUM ('transactionStatus', 'batchSettled', 'rowCorrected', 'customerLinked',
    'customerRevoked', 'customerExpired');
CREATE TYPE webhook_event_status AS ENUM ('pending', 'delivered', 'failed', 'undelivered');

-- The endpoints of an organisation: its default, whose site_id is the nil UUID, and overrides for
-- single Sites. The breaker's state is stored here, so that the whole fleet shares it.
CREATE TABLE webhook_endpoints (
    organisation_id uuid   NOT NULL REFERENCES organisations,
    site_id         uuid   NOT NULL,
    url             text   NOT NULL,
    events          webhook_event_type[] NOT NULL DEFAULT '{transactionStatus}',  -- event types it subscribes to
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    disabled_at     bigint,
    failures        int    NOT NULL DEFAULT 0,  -- consecutive
    open_until      bigint,                     -- the breaker is open until then, then half-open; NULL: closed
    openings        int    NOT NULL DEFAULT 0,  -- how often the breaker opened since width was last at its maximum
    width           int    NOT NULL,            -- maximum number of concurrent deliveries
    gone_since      bigint,                     -- the first of consecutive 410 responses
    PRIMARY KEY (organisation_id, site_id),
    CHECK ('transactionStatus' = ANY (events))
) WITH (fillfactor = 50);

-- webhook_endpoint_of returns the endpoint of an event, if there is one. A test goes to the tested
-- endpoint. Other events go to the endpoint of their Site or, without one, to the default. The
-- planner inlines it.
CREATE FUNCTION webhook_endpoint_of(organisation uuid, site uuid, is_test boolean, tested uuid)
RETURNS SETOF webhook_endpoints LANGUAGE sql STABLE PARALLEL SAFE ROWS 1 AS $$
    SELECT * FROM webhook_endpoints w
    WHERE w.organisation_id = organisation AND w.site_id IN (
        CASE WHEN is_test THEN tested ELSE site END,
        CASE WHEN is_test THEN tested ELSE '00000000-0000-0000-0000-000000000000' END)
    ORDER BY w.site_id DESC LIMIT 1
$$;

-- webhook_breaker returns the state of a breaker as models.WebhookBreaker has it. The planner
-- inlines it.
CREATE FUNCTION webhook_breaker(failures int, open_until bigint, openings int, width int, gone_since bigint)
RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY[failures, coalesce(open_until, 0), openings, width, coalesce(gone_since, 0)];

-- webhook_wanted reports whether the endpoint that applies to a Site is enabled and subscribes to
-- an event type. A statement that changes a state calls this function before it writes an event, so
-- that no unwanted event is stored.
CREATE FUNCTION webhook_wanted(organisation uuid, site uuid, type webhook_event_type) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((
        SELECT w.disabled_at IS NULL AND webhook_wanted.type = ANY (w.events)
        FROM webhook_endpoint_of(organisation, site, false, NULL) w), false);
END $$;

-- An organisation's signing secrets, encrypted under the master key. Every secret that has not
-- retired contributes to webhook-signature. The newest active secret also signs x-svc-signature.
CREATE TABLE webhook_secrets (
    organisation_id uuid   NOT NULL REFERENCES organisations,
    id              uuid   NOT NULL,
    sealed          bytea  NOT NULL,
    created_at      bigint NOT NULL,
    active_at       bigint NOT NULL,
    retired_at      bigint,
    PRIMARY KEY (organisation_id, id)
);

-- One row per event. The id derives from the event's subject, type and value. A state that is
-- reported again after a loss of the database thus has the same id. Every attempt sends the bytes
-- of body.
CREATE TABLE webhook_events (
    organisation_id    uuid                 NOT NULL,
    id                 uuid                 NOT NULL,
    site_id            uuid                 NOT NULL,
    type               webhook_event_type   NOT NULL,
    payment_intent_id  uuid,                                     -- transactionStatus events only
    transaction_status text,                                     -- transactionStatus events only
    is_test            boolean              NOT NULL DEFAULT false,
    endpoint_site_id   uuid,                                     -- test events only: the endpoint under test
    status             webhook_event_status NOT NULL,
    attempts           int                  NOT NULL DEFAULT 0,  -- over all rounds
    round              int                  NOT NULL DEFAULT 1,  -- each redelivery begins a round
    failures           int                  NOT NULL DEFAULT 0,  -- in this round
    created_at         bigint               NOT NULL,
    requested_at       bigint               NOT NULL,            -- when this round began
    requested_in       xid8                 NOT NULL DEFAULT pg_current_xact_id(),  -- the transaction that began it
    next_attempt_at    bigint,                                   -- while pending
    delivered_at       bigint,
    task_id            uuid,                                     -- the outbox id of this round's task
    trace_id           text                 NOT NULL,
    body               bytea                NOT NULL,
    CHECK ((type = 'transactionStatus') = (payment_intent_id IS NOT NULL)),
    CHECK ((payment_intent_id IS NULL) = (transaction_status IS NULL)),
    CHECK ((status = 'pending') = (next_attempt_at IS NOT NULL)),
    CHECK ((status = 'pending') = (task_id IS NOT NULL)),
    -- The id of an event begins with the time of its payment intent's id.
    CHECK (is_test OR left(id::text, 13) = left(payment_intent_id::text, 13))
) PARTITION BY RANGE (id);
ALTER TABLE webhook_events ALTER body SET STORAGE EXTERNAL;  -- bodies are too small for compression to pay off
CREATE TABLE webhook_events_default PARTITION OF webhook_events DEFAULT
    WITH (fillfactor = 70, autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);
-- Each payment intent has at most one event. An index of each partition enforces that: all events
-- of an intent would have ids of the same time, and so be in the same partition.
CREATE UNIQUE INDEX webhook_events_default_intent ON webhook_events_default (organisation_id, payment_intent_id)
    WHERE payment_intent_id IS NOT NULL;
CREATE INDEX webhook_events_list ON webhook_events (organisation_id, created_at DESC, id DESC);
CREATE INDEX webhook_events_list_by_status ON webhook_events (organisation_id, status, created_at DESC, id DESC);
-- Event streams read events in the order of the ids of database transactions. Below the id of the
-- oldest running transaction, no further event can appear.
CREATE INDEX webhook_events_requested ON webhook_events (organisation_id, requested_in, id);
-- Finds events past their retention. A pending event has the maximal value, so that it is kept.
CREATE INDEX webhook_events_age ON webhook_events
    ((CASE WHEN status = 'pending' THEN 9223372036854775807 ELSE requested_at END));
ALTER TABLE webhook_events ADD PRIMARY KEY (organisation_id, id);
CREATE TRIGGER webhook_events_transitions AFTER UPDATE OF status ON webhook_events
    FOR EACH ROW WHEN (OLD.status NOT IN ('pending', NEW.status) AND NEW.status IN ('delivered', 'failed'))
    EXECUTE FUNCTION refuse_transition('status');
SELECT make_first_partitions('webhook_events', 'month', 2);

-- The delivery slots of events at their endpoints. The rows are short and the indexes small. An
-- attempt changes this row several times. It updates the event itself, which has a body and many
-- indexes, only once: with the result.
--
--   parked    until IS NULL: the endpoint has no free slot, or its breaker is open
--   released  until is set, token IS NULL: the event holds a slot, and its task is on its way to a
--             worker
--   leased    token is set: the worker with that lease token makes the attempt with that number
CREATE TABLE webhook_slots (
    organisation_id  uuid   NOT NULL,
    event_id         uuid   NOT NULL,
    endpoint_site_id uuid   NOT NULL,  -- the endpoint's
    site_id          uuid   NOT NULL,  -- the event's
    requested_at     bigint NOT NULL,  -- when the event's round began: the oldest is released first
    task_id          uuid   NOT NULL,  -- the outbox id of the round's task
    until            timestamptz,      -- when a released or leased slot expires
    token            uuid,             -- the worker's lease token
    number           int,              -- the leased attempt's
    url              text,             -- the leased attempt's
    CHECK ((token IS NULL) = (number IS NULL) AND (token IS NULL OR until IS NOT NULL))
) WITH (fillfactor = 70,
    -- Most rows live for milliseconds, so vacuum goes by the number of dead rows, not by the
    -- table's size.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);
CREATE INDEX webhook_slots_taken ON webhook_slots (organisation_id, endpoint_site_id, until) WHERE until IS NOT NULL;
CREATE INDEX webhook_slots_parked ON webhook_slots (organisation_id, endpoint_site_id, requested_at, event_id)
    WHERE until IS NULL;
CREATE INDEX webhook_slots_parked_of_site ON webhook_slots
    (organisation_id, endpoint_site_id, site_id, requested_at, event_id)
    WHERE until IS NULL;
ALTER TABLE webhook_slots ADD PRIMARY KEY (organisation_id, event_id);

-- Each attempt to deliver an event, with the endpoint's response or the error. There is no foreign
-- key: attempts are written only under the lock of their event, and dropped together with it.
CREATE TABLE webhook_attempts (
    organisation_id  uuid   NOT NULL,
    event_id         uuid   NOT NULL,
    number           int    NOT NULL,
    endpoint_site_id uuid   NOT NULL,
    started_at       bigint NOT NULL,
    duration_ms      int    NOT NULL,
    status_code      int,
    url              text   NOT NULL,
    address          text   NOT NULL DEFAULT '',  -- the dialled address
    error            text   NOT NULL DEFAULT '',
    response_head    bytea  NOT NULL DEFAULT '',  -- status line, headers and the beginning of the body
    PRIMARY KEY (organisation_id, event_id, number)
) PARTITION BY RANGE (event_id);
CREATE TABLE webhook_attempts_default PARTITION OF webhook_attempts DEFAULT;
SELECT make_first_partitions('webhook_attempts', 'month', 2);

-- announce_settled_batch writes the task that announces a settled batch, if the endpoint subscribes
-- to batchSettled. A trigger calls it, so that it covers every statement that settles batches.
CREATE FUNCTION announce_settled_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF webhook_wanted(NEW.organisation_id, NEW.site_id, 'batchSettled') THEN
        INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, trace_id, available_at)
        VALUES (gen_random_uuid(), 'announceBatch', 'webhooks', NEW.organisation_id, NEW.site_id, NEW.id, NEW.trace_id,
            NEW.settled_at);
    END IF;
    RETURN NULL;
END $$;

-- announce_correction writes the task that announces a row's corrected outcome, if the endpoint
-- subscribes to rowCorrected. Statements that correct rows call it.
CREATE FUNCTION announce_correction(organisation uuid, site uuid, batch uuid, row_index int, trace_id text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF webhook_wanted(organisation, site, 'rowCorrected') THEN
        INSERT INTO outbox
            (id, kind, queue, organisation_id, site_id, subject_id, first_row, last_row, trace_id, available_at)
        VALUES (gen_random_uuid(), 'announceRow', 'webhooks', organisation, site, batch, row_index, row_index, trace_id,
            svc_now());
    END IF;
END $$;

CREATE TRIGGER batches_settle AFTER UPDATE ON batches
    FOR EACH ROW WHEN (OLD.settled_at IS NULL AND NEW.settled_at IS NOT NULL) EXECUTE FUNCTION announce_settled_batch();
