-- The platform: time, the identity of the database, partners with their Sites and API clients,
-- keys, and alerts.
--
-- A bigint column whose name ends in _at or _by holds service time in Unix milliseconds. A
-- timestamptz column holds the server's own time. Leases use server time, because the sandbox's
-- clock must not move them.
--
-- Primary keys are created after the other indexes of their tables. Among indexes of equal cost, as
-- on an empty table, the planner takes the newest, and connections keep their plans while tables
-- grow.

-- Service time is the server's time plus a stored offset, so clock skew between machines has no
-- effect. Tests may freeze it.
CREATE TABLE service_clock (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    offset_ms bigint  NOT NULL DEFAULT 0,
    frozen_ms bigint
);
INSERT INTO service_clock DEFAULT VALUES;

-- service_now is service time for statements. The planner inlines a view, but plans a function call
-- separately.
CREATE VIEW service_now AS
    SELECT coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms AS now
    FROM service_clock;

-- svc_now is service time for functions, defaults and rare statements. plpgsql keeps its plan for
-- the session.
CREATE FUNCTION svc_now() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT now FROM service_now);
END $$;

-- The deployment that the database belongs to. The first process writes it. A process with another
-- environment or another rail refuses to start. A rail is identified by its adapter and its
-- rail_id; its URL may change.
CREATE TABLE deployment (
    only_row         boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    environment      text    NOT NULL CHECK (environment IN ('sandbox', 'production')),
    rail             text    CHECK (rail IN ('sandbox', 'http')),  -- NULL: no process has used a rail
    rail_id          text    NOT NULL DEFAULT '',
    webhook_loopback boolean NOT NULL DEFAULT false,               -- webhooks may target loopback addresses
    CHECK (environment = 'sandbox' OR rail IS DISTINCT FROM 'sandbox' AND NOT webhook_loopback)
);

-- The identity of the database when the service last compared it. A promoted standby has another
-- timeline, and a restored dump has another system identifier. Both may have lost commits that the
-- service had acknowledged, so both begin a new epoch. Work from an earlier epoch is in doubt.
CREATE TABLE database_epoch (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch             int     NOT NULL DEFAULT 1,
    began_at          bigint,                     -- NULL for the first epoch: no loss precedes it
    system_identifier bigint  NOT NULL,
    timeline          text    NOT NULL,
    held_before       int     NOT NULL DEFAULT 0, -- work from epochs below this one waits for an operator
    cancelled_before  int     NOT NULL DEFAULT 0, -- work from epochs below this one is cancelled on the rail
    CHECK ((epoch = 1) = (began_at IS NULL)),
    CHECK (held_before <= epoch AND cancelled_before <= epoch)
);

-- server_identity is the identity of this server. The WAL's file name holds the current timeline;
-- the control file is updated later.
CREATE VIEW server_identity AS
    SELECT system_identifier, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) AS timeline
    FROM pg_control_system();

INSERT INTO database_epoch (system_identifier, timeline) SELECT system_identifier, timeline FROM server_identity;

-- current_epoch compares the server's identity with the stored identity, begins a new epoch if they
-- differ, and returns the current epoch. Every statement that claims, cancels or settles money
-- calls it.
--
--   rail_memory  how long a rail keeps keys, in milliseconds
--   certain      no earlier loss can affect work of this epoch: the rail has forgotten every key of
--                earlier epochs, or this is the first epoch
CREATE FUNCTION current_epoch(rail_memory bigint, OUT epoch int, OUT certain boolean,
    OUT held_before int, OUT cancelled_before int)
LANGUAGE plpgsql AS $$
DECLARE
    server server_identity;
BEGIN
    SELECT * INTO server FROM server_identity;
    UPDATE database_epoch e
    SET epoch = e.epoch + 1, began_at = svc_now(), system_identifier = server.system_identifier,
        timeline = server.timeline
    WHERE e.system_identifier <> server.system_identifier OR e.timeline <> server.timeline;
    SELECT e.epoch, coalesce(e.began_at + rail_memory <= svc_now(), true), e.held_before, e.cancelled_before
    INTO current_epoch.epoch, certain, current_epoch.held_before, current_epoch.cancelled_before FROM database_epoch e;
END $$;

-- A partner.
CREATE TABLE organisations (
    id         uuid   PRIMARY KEY,
    name       text   NOT NULL,
    created_at bigint NOT NULL
);

-- A Site is a business location of a partner. Customers, batches and payment intents belong to a
-- Site.
CREATE TABLE sites (
    id              uuid    NOT NULL,
    organisation_id uuid    NOT NULL REFERENCES organisations,
    name            text    NOT NULL,
    currency        char(3) NOT NULL DEFAULT 'AUD',
    created_at      bigint  NOT NULL
);
CREATE INDEX sites_organisation ON sites (organisation_id);
ALTER TABLE sites ADD PRIMARY KEY (id);

-- API clients. A client without an organisation belongs to the customer app's backend.
CREATE TABLE api_clients (
    id              uuid   NOT NULL,
    organisation_id uuid   REFERENCES organisations,
    name            text   NOT NULL,
    scopes          text[] NOT NULL,
    jwks            jsonb,             -- public keys for private_key_jwt
    created_at      bigint NOT NULL,
    disabled_at     bigint
);
CREATE INDEX api_clients_organisation ON api_clients (organisation_id);
ALTER TABLE api_clients ADD PRIMARY KEY (id);

-- A client has at most two live secrets, so that a secret can be replaced without an outage.
-- Secrets are random 256-bit values, so a stolen SHA-256 hash reveals nothing.
CREATE TABLE client_secrets (
    client_id   uuid   NOT NULL REFERENCES api_clients,
    secret_hash bytea  NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (client_id, secret_hash)
);

-- The ids of used client assertions (RFC 7523), kept until the assertions expire. They prevent
-- replay.
CREATE TABLE client_assertions (
    client_id  uuid   NOT NULL,
    jti        text   NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX client_assertions_expiry ON client_assertions (expires_at);
ALTER TABLE client_assertions ADD PRIMARY KEY (client_id, jti);

-- The service's own keys. Each is encrypted under the master key (AES-256-GCM, prefixed with the
-- master key's id). The newest active key of a purpose issues tokens; the other keys verify tokens
-- until they retire.
CREATE TABLE service_keys (
    id         uuid   NOT NULL,
    purpose    text   NOT NULL CHECK (purpose IN ('accessToken', 'signupLink', 'paginationLink')),
    sealed     bytea  NOT NULL,
    created_at bigint NOT NULL,
    active_at  bigint NOT NULL,
    retired_at bigint
);
CREATE INDEX service_keys_purpose ON service_keys (purpose, active_at DESC);
ALTER TABLE service_keys ADD PRIMARY KEY (id);

-- Idempotency-Key: one row per finished request, written in the transaction of the request's
-- effect. The row names the created resource. A replay builds the response from that resource, so
-- no response and no sign-up link is stored.
CREATE TABLE idempotency_keys (
    client_id   uuid   NOT NULL,
    path        text   NOT NULL,
    key         text   NOT NULL,
    fingerprint bytea  NOT NULL,
    resource_id uuid   NOT NULL,
    created_at  bigint NOT NULL
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
ALTER TABLE idempotency_keys ADD PRIMARY KEY (client_id, path, key);

-- Alerts are conditions that an operator must look at. Each kind and subject has one row, however
-- often it recurs.
CREATE TABLE alerts (
    kind            text   NOT NULL,
    subject         text   NOT NULL,
    organisation_id uuid,
    site_id         uuid,
    detail          text   NOT NULL DEFAULT '',
    trace_id        text   NOT NULL DEFAULT '',
    raised_at       bigint NOT NULL,
    closed_at       bigint
);
CREATE INDEX alerts_open ON alerts (raised_at) WHERE closed_at IS NULL;
CREATE INDEX alerts_open_by_kind ON alerts (kind) WHERE closed_at IS NULL;
ALTER TABLE alerts ADD PRIMARY KEY (kind, subject);

-- raise_alert opens an alert, or reopens a closed alert. All code that raises alerts calls it. It
-- is a function so that statements that seldom raise an alert do not plan the INSERT.
CREATE FUNCTION raise_alert(kind text, subject text, organisation uuid, site uuid, detail text, trace_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO alerts AS a (kind, subject, organisation_id, site_id, detail, trace_id, raised_at)
    VALUES (kind, subject, organisation, site, detail, trace_id, svc_now())
    ON CONFLICT ON CONSTRAINT alerts_pkey DO UPDATE SET detail = excluded.detail, closed_at = NULL,
        raised_at = CASE WHEN a.closed_at IS NULL THEN a.raised_at ELSE excluded.raised_at END;
END $$;
