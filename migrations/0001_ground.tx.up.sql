-- The clock. Service time is the database's time plus a stored offset, so that skew between machines decides
-- nothing; a frozen time is for tests. Leases use the database's own time, which nobody moves.
CREATE TABLE service_clock (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    offset_ms bigint  NOT NULL DEFAULT 0,
    frozen_ms bigint
);
INSERT INTO service_clock DEFAULT VALUES;

CREATE FUNCTION svc_now() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms
    FROM service_clock
$$;

CREATE TABLE organisations (
    id         uuid   PRIMARY KEY,
    name       text   NOT NULL,
    created_at bigint NOT NULL
);

CREATE TABLE sites (
    id              uuid    PRIMARY KEY,
    organisation_id uuid    NOT NULL REFERENCES organisations,
    name            text    NOT NULL,
    currency        char(3) NOT NULL DEFAULT 'AUD',
    created_at      bigint  NOT NULL
);
CREATE INDEX sites_organisation ON sites (organisation_id);

-- API clients. One without an organisation belongs to the customer app's backend.
CREATE TABLE api_clients (
    id              uuid   PRIMARY KEY,
    organisation_id uuid   REFERENCES organisations,
    name            text   NOT NULL,
    scopes          text[] NOT NULL,
    jwks            jsonb,             -- public keys for private_key_jwt
    created_at      bigint NOT NULL,
    disabled_at     bigint
);
CREATE INDEX api_clients_organisation ON api_clients (organisation_id);

-- At most two live secrets a client, so that one can be replaced without an outage. Secrets are random 256-bit
-- values: a plain SHA-256 is enough to make the table useless to a thief.
CREATE TABLE client_secrets (
    client_id   uuid   NOT NULL REFERENCES api_clients,
    secret_hash bytea  NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (client_id, secret_hash)
);

-- The ids of client assertions (RFC 7523) already used, kept until they expire by themselves.
CREATE TABLE client_assertions (
    client_id  uuid   NOT NULL,
    jti        text   NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (client_id, jti)
);
CREATE INDEX client_assertions_expiry ON client_assertions (expires_at);

-- The service's own keys, each sealed under the master key (AES-256-GCM, the master key's id in front).
-- The newest active one of a purpose is used; the others still verify what they made until they retire.
CREATE TABLE service_keys (
    id         uuid   PRIMARY KEY,
    purpose    text   NOT NULL CHECK (purpose IN ('accessToken', 'signupLink', 'paginationLink')),
    sealed     bytea  NOT NULL,
    created_at bigint NOT NULL,
    active_at  bigint NOT NULL,
    retired_at bigint
);
CREATE INDEX service_keys_purpose ON service_keys (purpose, active_at DESC);

-- Idempotency-Key: one row a finished request, written in the transaction of its effect. It names the resource
-- that was made; the answer is built again from that, so that no answer (and no sign-up link) is stored.
CREATE TABLE idempotency_keys (
    client_id   uuid   NOT NULL,
    path        text   NOT NULL,
    key         text   NOT NULL,
    fingerprint bytea  NOT NULL,
    resource_id uuid   NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (client_id, path, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- What an operator must look at: one row a subject, however often it happens.
CREATE TABLE alerts (
    kind            text   NOT NULL,
    subject         text   NOT NULL,
    organisation_id uuid,
    site_id         uuid,
    detail          text   NOT NULL DEFAULT '',
    trace_id        text   NOT NULL DEFAULT '',
    raised_at       bigint NOT NULL,
    closed_at       bigint,
    PRIMARY KEY (kind, subject)
);
CREATE INDEX alerts_open ON alerts (raised_at) WHERE closed_at IS NULL;
