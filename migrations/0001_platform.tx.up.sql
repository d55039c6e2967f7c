-- The platform: time, the identity of the database, partners with their Sites and API clients, keys, and alerts.
--
-- A column whose name ends in _at or _by and whose type is bigint holds service time in Unix milliseconds. A timestamptz
-- column holds the server's own time: leases use it, because the sandbox's clock must not move them.
--
-- Primary keys are made after the other indexes of their tables. Of indexes that cost the same, as on an empty table, the
-- planner takes the one made last, and a connection keeps its plans while tables grow.

-- Service time is the server's time plus a stored offset, so that skew between machines decides nothing. Tests may
-- freeze it.
CREATE TABLE service_clock (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    offset_ms bigint  NOT NULL DEFAULT 0,
    frozen_ms bigint
);
INSERT INTO service_clock DEFAULT VALUES;

-- Service time for statements: a view becomes part of the statement's plan, where a function call is planned anew.
CREATE VIEW service_now AS
    SELECT coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms AS now
    FROM service_clock;

-- Service time for functions, defaults and rare statements. plpgsql keeps its plan for the session.
CREATE FUNCTION svc_now() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT now FROM service_now);
END $$;

-- The service that the database belongs to, written by its first process. A process of the other environment, or with
-- another rail, refuses to start. The rail is the adapter and what names the rail behind it; an address may change.
CREATE TABLE deployment (
    only_row         boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    environment      text    NOT NULL CHECK (environment IN ('sandbox', 'production')),
    rail             text    CHECK (rail IN ('sandbox', 'http')),  -- NULL: no process has used one
    rail_id          text    NOT NULL DEFAULT '',
    webhook_loopback boolean NOT NULL DEFAULT false,               -- webhooks may go to this machine's loopback addresses
    CHECK (environment = 'sandbox' OR rail IS DISTINCT FROM 'sandbox' AND NOT webhook_loopback)
);

-- The identity of the database as the service last saw it. A promoted standby has another timeline, a restored dump
-- another system identifier. Either may have lost commits that the service had acknowledged, so each begins an epoch:
-- what was begun in an earlier epoch is in doubt.
CREATE TABLE database_epoch (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch             int     NOT NULL DEFAULT 1,
    began_at          bigint,                     -- NULL for the first: nothing can have been lost before it
    system_identifier bigint  NOT NULL,
    timeline          text    NOT NULL,
    held_before       int     NOT NULL DEFAULT 0, -- work of earlier epochs waits for an operator
    cancelled_before  int     NOT NULL DEFAULT 0, -- work of earlier epochs is cancelled on the rail
    CHECK ((epoch = 1) = (began_at IS NULL)),
    CHECK (held_before <= epoch AND cancelled_before <= epoch)
);

-- The identity of this server: the timeline that it writes, which the control file knows only later.
CREATE VIEW server_identity AS
    SELECT system_identifier, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) AS timeline
    FROM pg_control_system();

INSERT INTO database_epoch (system_identifier, timeline) SELECT system_identifier, timeline FROM server_identity;

-- current_epoch compares the server's identity with the stored one, begins a new epoch where they differ, and returns
-- what a statement must know of it. Every statement that claims, cancels or settles money reads it.
--
--   certain  no loss can matter to work of this epoch: the rail has forgotten every key of an earlier one, or there is
--            none. rail_memory is how long a rail keeps keys, in milliseconds.
CREATE FUNCTION current_epoch(rail_memory bigint, OUT epoch int, OUT certain boolean, OUT held_before int, OUT cancelled_before int)
LANGUAGE plpgsql AS $$
DECLARE
    server server_identity;
BEGIN
    SELECT * INTO server FROM server_identity;
    UPDATE database_epoch e
    SET epoch = e.epoch + 1, began_at = svc_now(), system_identifier = server.system_identifier, timeline = server.timeline
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

-- A place where a partner does business. Customers, batches and payment intents belong to one.
CREATE TABLE sites (
    id              uuid    NOT NULL,
    organisation_id uuid    NOT NULL REFERENCES organisations,
    name            text    NOT NULL,
    currency        char(3) NOT NULL DEFAULT 'AUD',
    created_at      bigint  NOT NULL
);
CREATE INDEX sites_organisation ON sites (organisation_id);
ALTER TABLE sites ADD PRIMARY KEY (id);

-- API clients. One without an organisation belongs to the customer app's backend.
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

-- A client has at most two live secrets, so that one can be replaced without an outage. Secrets are random 256-bit
-- values: their SHA-256 is useless to a thief.
CREATE TABLE client_secrets (
    client_id   uuid   NOT NULL REFERENCES api_clients,
    secret_hash bytea  NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (client_id, secret_hash)
);

-- The ids of client assertions (RFC 7523) that were used, kept until the assertions expire.
CREATE TABLE client_assertions (
    client_id  uuid   NOT NULL,
    jti        text   NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX client_assertions_expiry ON client_assertions (expires_at);
ALTER TABLE client_assertions ADD PRIMARY KEY (client_id, jti);

-- The service's own keys, each sealed under the master key (AES-256-GCM, the master key's id in front). The newest
-- active key of a purpose makes tokens; the others verify until they retire.
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

-- Idempotency-Key: one row a finished request, written in the transaction of its effect. The row names the resource
-- that was made; a replay builds the answer from the resource, so that no answer (and no sign-up link) is stored.
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

-- What an operator must look at: one row a subject, however often it happens.
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

-- raise_alert raises an alert, or raises it again if it was closed. Everything that raises alerts calls it. Statements
-- that seldom raise one do not pay for an INSERT that they seldom make.
CREATE FUNCTION raise_alert(kind text, subject text, organisation uuid, site uuid, detail text, trace_id text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO alerts AS a (kind, subject, organisation_id, site_id, detail, trace_id, raised_at)
    VALUES (kind, subject, organisation, site, detail, trace_id, svc_now())
    ON CONFLICT ON CONSTRAINT alerts_pkey DO UPDATE SET detail = excluded.detail, closed_at = NULL,
        raised_at = CASE WHEN a.closed_at IS NULL THEN a.raised_at ELSE excluded.raised_at END;
END $$;
