CREATE TYPE webhook_event_status AS ENUM ('pending', 'delivered', 'failed', 'undelivered');

-- Where an organisation's events go: its default (no Site: the nil UUID) and overrides for single Sites. The breaker is
-- here, and so the whole fleet's: times are service time.
CREATE TABLE webhook_endpoints (
    organisation_id uuid   NOT NULL REFERENCES organisations,
    site_id         uuid   NOT NULL,
    url             text   NOT NULL,
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    disabled_at     bigint,
    failures        int    NOT NULL DEFAULT 0,  -- in a row
    open_until      bigint,                     -- nothing is sent before, and then one probe at a time
    openings        int    NOT NULL DEFAULT 0,  -- since deliveries last went at full width
    width           int    NOT NULL,            -- deliveries at once
    gone_since      bigint,                     -- the first 410 of an unbroken row
    PRIMARY KEY (organisation_id, site_id)
) WITH (fillfactor = 50);

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

-- One row an event, written in the transaction that makes its status final. body is what every attempt sends.
CREATE TABLE webhook_events (
    organisation_id    uuid                 NOT NULL,
    id                 uuid                 NOT NULL,
    site_id            uuid                 NOT NULL,
    payment_intent_id  uuid                 NOT NULL,
    transaction_status text                 NOT NULL,
    is_test            boolean              NOT NULL DEFAULT false,
    status             webhook_event_status NOT NULL,
    attempts           int                  NOT NULL DEFAULT 0,  -- in all
    round              int                  NOT NULL DEFAULT 1,  -- one more with every redelivery
    failures           int                  NOT NULL DEFAULT 0,  -- in this round
    created_at         bigint               NOT NULL,
    requested_at       bigint               NOT NULL,            -- when this round began
    next_attempt_at    bigint,                                   -- while pending
    delivered_at       bigint,
    is_parked          boolean              NOT NULL DEFAULT false,  -- waits for its endpoint to take more
    endpoint_site_id   uuid,                                     -- of the endpoint that it is parked for or being sent to
    lease_token        uuid,
    lease_until        timestamptz,                              -- real time
    task_id            uuid,                                     -- of this round, in the outbox
    trace_id           text                 NOT NULL,
    body               bytea                NOT NULL,
    PRIMARY KEY (organisation_id, id),
    CHECK ((status = 'pending') = (next_attempt_at IS NOT NULL))
) WITH (fillfactor = 70);
ALTER TABLE webhook_events ALTER body SET STORAGE EXTERNAL;  -- read as often as written, and small
-- One final status, one event.
CREATE UNIQUE INDEX webhook_events_intent ON webhook_events (organisation_id, payment_intent_id);
CREATE INDEX webhook_events_list ON webhook_events (organisation_id, created_at DESC, id DESC);
CREATE INDEX webhook_events_list_by_status ON webhook_events (organisation_id, status, created_at DESC, id DESC);
CREATE INDEX webhook_events_requested ON webhook_events (organisation_id, requested_at);
CREATE INDEX webhook_events_leased ON webhook_events (organisation_id, endpoint_site_id) WHERE lease_until IS NOT NULL;
CREATE INDEX webhook_events_parked ON webhook_events (organisation_id, endpoint_site_id, requested_at, id) WHERE is_parked;
CREATE INDEX webhook_events_age ON webhook_events (created_at);

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

-- A delivery that waits in Redis for its next attempt is in flight, with its time in available_at still to come. Such
-- tasks are not counted against their organisation's cap, and go out at once if the service's clock is moved.
DROP INDEX outbox_lane_in_flight;
CREATE INDEX outbox_lane_in_flight ON outbox (queue, organisation_id, available_at) WHERE dispatched_at IS NOT NULL;
CREATE INDEX outbox_retries ON outbox (available_at) WHERE dispatched_at IS NOT NULL AND kind = 'deliverWebhook';
