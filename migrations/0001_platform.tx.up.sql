-- The platform: time, the identity of the database, partners with their Sites and API clients,
-- keys, alerts, and the audit log.
--
-- Unless a comment says otherwise, a bigint column for a point in time (created_at, settle_by,
-- open_until) holds service time in Unix milliseconds. A timestamptz column holds the server's own
-- time. Leases use server time, because the sandbox's clock must not move them.
--
-- Primary keys are created after the other indexes of their tables. Among indexes of equal cost, as
-- on an empty table, the planner takes the newest. Connections keep that choice while the table
-- grows.
--
-- A table with a column only_row has one row; deployment has none until the first process joins.

-- Service time is the server's time plus a stored offset. Clock skew between the machines of the
-- service thus has no effect.
CREATE TABLE service_clock (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    offset_ms bigint  NOT NULL DEFAULT 0,  -- how far the sandbox's clock was moved
    frozen_ms bigint                       -- in tests: the Unix milliseconds that replace the server's time
);
INSERT INTO service_clock DEFAULT VALUES;

-- service_now holds service time, in Unix milliseconds, for statements. The planner inlines a view,
-- but plans a function call separately.
CREATE VIEW service_now AS
    SELECT coalesce(frozen_ms, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) + offset_ms AS now
    FROM service_clock;

-- svc_now returns service time, in Unix milliseconds, for functions, defaults and rare statements.
-- plpgsql plans its query once for each session.
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

-- The identity of the database when the service last looked, and the present epoch. A promoted
-- standby has another timeline, and a restored dump has another system identifier. Both may have
-- lost commits that the service had acknowledged, so both begin a new epoch. Work from an earlier
-- epoch is in doubt.
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

-- server_identity holds the identity of this server. The timeline is that of the WAL's file name: a
-- promotion updates the control file only later.
CREATE VIEW server_identity AS
    SELECT system_identifier, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) AS timeline
    FROM pg_control_system();

INSERT INTO database_epoch (system_identifier, timeline) SELECT system_identifier, timeline FROM server_identity;

-- current_epoch compares the server's identity with the stored identity, begins a new epoch if they
-- differ, and returns the current epoch. Every statement that claims, cancels or settles money
-- calls it.
--
--   rail_memory    argument: how long a rail keeps keys, in milliseconds
--   epoch          the current epoch
--   certain        no earlier loss can affect work of this epoch: the rail has forgotten every key
--                  of earlier epochs, or this is the first epoch
--   held_before, cancelled_before
--                  the columns of database_epoch
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
    colour     text   CHECK (colour ~ '^#[0-9a-f]{6}$'), -- of its hosted pages; NULL: derived from the name
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

-- The API clients of partners. A client without an organisation is the backend of the customer app.
CREATE TABLE api_clients (
    id                uuid   NOT NULL,
    organisation_id   uuid   REFERENCES organisations,
    name              text   NOT NULL,
    scopes            text[] NOT NULL,
    jwks              jsonb,                         -- public keys for private_key_jwt
    allowed_addresses text[] NOT NULL DEFAULT '{}',  -- CIDR prefixes of callers; empty: any address
    created_at        bigint NOT NULL,
    disabled_at       bigint
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

-- When a client last used each credential: a secret by its fingerprint, or a public key by its
-- thumbprint. A use is recorded at most once a minute. Rows of removed credentials stay.
CREATE TABLE credential_uses (
    client_id   uuid        NOT NULL REFERENCES api_clients,
    fingerprint text        NOT NULL,
    used_at     timestamptz NOT NULL,
    PRIMARY KEY (client_id, fingerprint)
);

-- Client assertions (RFC 7523) that were used. Each is kept until it expires, so that it cannot be
-- used again.
CREATE TABLE client_assertions (
    client_id  uuid   NOT NULL,
    jti        text   NOT NULL,  -- a digest of the assertion's jti
    expires_at bigint NOT NULL   -- the server's own time, in Unix milliseconds
);
CREATE INDEX client_assertions_expiry ON client_assertions (expires_at);
ALTER TABLE client_assertions ADD PRIMARY KEY (client_id, jti);

-- The service's own keys. Each is encrypted under the master key (AES-256-GCM, prefixed with the
-- master key's id). The newest active key of a purpose makes new tokens and links. Older keys
-- verify theirs until they retire. All times are the server's own, in Unix milliseconds.
CREATE TABLE service_keys (
    id         uuid   NOT NULL,
    purpose    text   NOT NULL CHECK (purpose IN ('accessToken', 'signupLink', 'sealedText')),
    sealed     bytea  NOT NULL,
    created_at bigint NOT NULL,
    active_at  bigint NOT NULL,
    retired_at bigint
);
CREATE INDEX service_keys_purpose ON service_keys (purpose, active_at DESC);
ALTER TABLE service_keys ADD PRIMARY KEY (id);

-- The requests with an Idempotency-Key: one row per finished request, written in the transaction of
-- the request's effect. A replay builds the response from the created resource, so no response and
-- no sign-up link is stored.
CREATE TABLE idempotency_keys (
    client_id   uuid   NOT NULL,
    path        text   NOT NULL,
    key         text   NOT NULL,
    fingerprint bytea  NOT NULL,  -- of the request's body
    resource_id uuid   NOT NULL,  -- the created resource
    created_at  bigint NOT NULL
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
ALTER TABLE idempotency_keys ADD PRIMARY KEY (client_id, path, key);

-- Alerts are conditions that an operator must look at. Each pair of kind and subject has one row,
-- however often the condition recurs.
CREATE TABLE alerts (
    kind            text   NOT NULL,
    subject         text   NOT NULL,
    organisation_id uuid,
    site_id         uuid,
    detail          text   NOT NULL DEFAULT '',
    trace_id        text   NOT NULL DEFAULT '',
    raised_at       bigint NOT NULL,            -- when the alert was last opened
    acknowledged_at bigint,                     -- since when an operator deals with it
    acknowledged_by text   NOT NULL DEFAULT '', -- the operator
    closed_at       bigint,
    CHECK ((acknowledged_at IS NULL) = (acknowledged_by = ''))
);
CREATE INDEX alerts_open ON alerts (raised_at) WHERE closed_at IS NULL;
CREATE INDEX alerts_closed ON alerts (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX alerts_open_by_kind ON alerts (kind) WHERE closed_at IS NULL;
ALTER TABLE alerts ADD PRIMARY KEY (kind, subject);

-- raise_alert opens an alert, reopens a closed alert, or updates the detail of an open alert. All
-- code that raises alerts calls it. It is a function, so that statements that seldom raise an alert
-- need not plan the INSERT.
CREATE FUNCTION raise_alert(kind text, subject text, organisation uuid, site uuid, detail text, trace_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO alerts AS a (kind, subject, organisation_id, site_id, detail, trace_id, raised_at)
    VALUES (kind, subject, organisation, site, detail, trace_id, svc_now())
    ON CONFLICT ON CONSTRAINT alerts_pkey DO UPDATE SET detail = excluded.detail, closed_at = NULL,
        acknowledged_at = CASE WHEN a.closed_at IS NULL THEN a.acknowledged_at END,
        acknowledged_by = CASE WHEN a.closed_at IS NULL THEN a.acknowledged_by ELSE '' END,
        raised_at = CASE WHEN a.closed_at IS NULL THEN a.raised_at ELSE excluded.raised_at END;
END $$;

-- refuse_transition refuses a change of state that no state machine allows. The state machines are
-- in Go: models/*_state.go, models/webhook_event.go. The trigger <table>_transitions of a table
-- calls the function for every change that they do not allow; a test compares the two. Its
-- arguments are the columns that describe the state, for the message. The triggers are AFTER
-- triggers, because BEFORE triggers lock each row again.
CREATE FUNCTION refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE check_violation USING CONSTRAINT = TG_NAME, TABLE = TG_TABLE_NAME, MESSAGE = (
        SELECT format('%s may not change from %s to %s', TG_TABLE_NAME,
            string_agg(to_jsonb(OLD) ->> c, ' '), string_agg(to_jsonb(NEW) ->> c, ' '))
        FROM unnest(TG_ARGV) c);
END $$;

-- The audit log. It records each act of an operator (svc admin), and each act by which a partner
-- changes its configuration or cancels debits. The transaction of a successful act writes its
-- entry, so that neither exists without the other.
CREATE TABLE audit_log (
    id              uuid        NOT NULL,
    at              bigint      NOT NULL,               -- service time
    recorded_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    actor_kind      text        NOT NULL CHECK (actor_kind IN ('operator', 'client')),
    actor           text        NOT NULL,               -- the operator's name, or the client's id
    origin          text        NOT NULL,               -- the peer's address, or account@host
    act             text        NOT NULL,
    subject_kind    text        NOT NULL DEFAULT '',
    subject         text        NOT NULL DEFAULT '',    -- the changed thing, of the subject_kind
    organisation_id uuid,                               -- the organisation concerned
    site_id         uuid,
    detail          jsonb       NOT NULL DEFAULT '{}',  -- no secrets, no personal data
    outcome         text        NOT NULL CHECK (outcome IN ('done', 'refused', 'failed')),
    code            text        NOT NULL DEFAULT '',    -- why it was refused or failed
    trace_id        text        NOT NULL,
    CHECK ((outcome = 'done') = (code = ''))
);
CREATE INDEX audit_log_organisation ON audit_log (organisation_id, at, id);
CREATE INDEX audit_log_subject ON audit_log (subject, at, id);
CREATE INDEX audit_log_time ON audit_log (at, id);
ALTER TABLE audit_log ADD PRIMARY KEY (id);

-- The audit log is append-only and kept for ever. ENABLE ALWAYS keeps the trigger on in sessions
-- that replicate. OPERATIONS.md describes how the owner of the tables may remove old entries.
CREATE FUNCTION refuse_audit_log_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE insufficient_privilege USING MESSAGE = 'audit_log is append-only: ' || TG_OP || ' is refused';
END $$;
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_log_change();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_append_only;
REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM PUBLIC, CURRENT_USER;

-- Partitions. A growing table is partitioned by the time in its ids, which are UUIDv7s of real
-- time. A look-up by id reads one partition, and retention drops whole partitions. The name of a
-- partition ends in the date on which the partition begins. The partition whose name ends in
-- _default holds the ids outside of all other partitions: older than the oldest, or beyond the
-- newest.

-- id_at returns the lowest UUID of a time, cut to whole milliseconds.
CREATE FUNCTION id_at(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;

-- The partitions of all partitioned tables, except each _default. A partition holds the ids from
-- lowest to below beyond.
CREATE VIEW partitions AS
    SELECT p.relname AS parent, c.relname AS name, (bound.ids[1])::uuid AS lowest, (bound.ids[2])::uuid AS beyond
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
    CROSS JOIN regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(.*)''\) TO \(''(.*)''\)') AS bound (ids)
    WHERE p.relkind = 'p' AND p.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND bound.ids IS NOT NULL;

-- The functions that make and drop partitions run as the owner of the tables, so that workers need
-- no right to change the schema.

-- make_partition makes the partition of the table parent for the period ('week' or 'month', in UTC)
-- that begins at begins. It copies storage parameters and local indexes from the _default, and
-- moves the rows of the period from there. It returns true if it has made the partition. It returns
-- false if the partition exists already, or if more than most rows would have to move.
CREATE FUNCTION make_partition(parent name, period text, begins timestamptz, most int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    name    text := format('%s_p%s', parent, to_char(begins AT TIME ZONE 'UTC', 'YYYYMMDD'));
    rest    text := parent || '_default';
    lowest  uuid := id_at(begins);
    beyond  uuid := id_at((begins AT TIME ZONE 'UTC' + ('1 ' || period)::interval) AT TIME ZONE 'UTC');
    key     text := (SELECT a.attname FROM pg_partitioned_table t JOIN pg_attribute a ON a.attrelid = t.partrelid
                        AND a.attnum = t.partattrs[0] WHERE t.partrelid = parent::regclass);
    options text := (SELECT 'WITH (' || array_to_string(reloptions, ', ') || ')' FROM pg_class
                     WHERE oid = rest::regclass);
    local   text;
    waiting bigint;
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %I IN SHARE UPDATE EXCLUSIVE MODE', parent);
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', rest);
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %I WHERE %I >= %L AND %2$I < %4$L LIMIT %5$s) ids',
        rest, key, lowest, beyond, most::bigint + 1) INTO waiting;
    IF waiting > most THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL EXCLUDING INDEXES) %s', name, rest, coalesce(options, ''));
    IF waiting > 0 THEN
        EXECUTE format('WITH moved AS (DELETE FROM %1$I WHERE %2$I >= %3$L AND %2$I < %4$L RETURNING *)
            INSERT INTO %5$I SELECT * FROM moved', rest, key, lowest, beyond, name);
    END IF;
    -- Indexes of the _default that the parent does not have.
    FOR local IN
        SELECT replace(pg_get_indexdef(i.indexrelid), rest, name) FROM pg_index i
        WHERE i.indrelid = rest::regclass AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)
    LOOP
        EXECUTE local;
    END LOOP;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, lowest, beyond);
    RETURN true;
END $$;

-- make_first_partitions makes the first partitions of a new table: for the period before, the
-- present period, and as many later periods as ahead says. A slow clock or a long transaction may
-- still insert ids of the period before.
CREATE FUNCTION make_first_partitions(parent name, period text, ahead int) RETURNS void LANGUAGE sql AS $$
    SELECT make_partition(parent, period,
        (date_trunc(period, statement_timestamp(), 'UTC') AT TIME ZONE 'UTC' + n * ('1 ' || period)::interval)
            AT TIME ZONE 'UTC', 0)
    FROM generate_series(-1, ahead) AS n ORDER BY n
$$;

-- kept_in_partition counts what retention still keeps of a partition of the table parent, up to
-- most + 1. Of webhook_events it counts the pending events, and those whose latest round began
-- after until (service time in Unix milliseconds). It returns most + 1, so that the partition is
-- not dropped, while webhook_attempts lacks the matching partition: the events are then removed one
-- by one. The same holds for batch_rows while a Site still has a batch in the partition's range:
-- rows of batches do not move.
CREATE FUNCTION kept_in_partition(parent name, partition name, until bigint, most int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    kept bigint;
BEGIN
    IF parent = 'batch_rows' THEN
        RETURN CASE WHEN EXISTS (SELECT FROM partitions p CROSS JOIN sites s CROSS JOIN LATERAL (
            SELECT FROM batches b WHERE b.site_id = s.id AND b.id >= p.lowest AND b.id < p.beyond LIMIT 1) b
            WHERE p.name = partition) THEN most::bigint + 1 ELSE 0 END;
    END IF;
    IF parent = 'webhook_events'
        AND to_regclass(replace(partition, 'webhook_events', 'webhook_attempts')) IS NULL THEN
        RETURN most::bigint + 1;
    END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM %I r WHERE %s LIMIT %s) kept', partition,
        partition_keeps(parent, until), most::bigint + 1) INTO kept;
    RETURN kept;
END $$;

-- partition_keeps returns the SQL condition under which retention keeps a row r of a table; NULL
-- for a table without such rows.
CREATE FUNCTION partition_keeps(parent name, until bigint) RETURNS text LANGUAGE sql IMMUTABLE RETURN format(
    CASE parent WHEN 'webhook_events' THEN
        '(CASE WHEN r.status = ''pending'' THEN 9223372036854775807 ELSE r.requested_at END) > %s'
    END, until);

-- drop_partition drops a partition of the table parent. It first moves the rows that retention
-- keeps to the _default; see kept_in_partition for until. Attempts and slots go with their events.
-- It returns true if it has dropped the partition. It returns false, and changes nothing, if more
-- than most rows would have to move, or if there is no such partition. It does not drop a _default.
CREATE FUNCTION drop_partition(parent name, partition name, until bigint, most int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    attempts text := replace(partition, 'webhook_events', 'webhook_attempts');
    kept     bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM partitions p WHERE p.parent = drop_partition.parent AND p.name = partition) THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', parent);
    kept := kept_in_partition(parent, partition, until, most);
    IF kept > most THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, partition);
    IF kept > 0 THEN
        EXECUTE format('INSERT INTO %I SELECT r.* FROM %I r WHERE %s', parent, partition,
            partition_keeps(parent, until));
    END IF;
    IF parent = 'webhook_events' THEN
        EXECUTE format('ALTER TABLE webhook_attempts DETACH PARTITION %I', attempts);
        EXECUTE format('INSERT INTO webhook_attempts SELECT a.* FROM %I a JOIN %I r
            ON r.organisation_id = a.organisation_id AND r.id = a.event_id WHERE %s',
            attempts, partition, partition_keeps(parent, until));
        EXECUTE format('DELETE FROM webhook_slots p USING %I r
            WHERE r.organisation_id = p.organisation_id AND r.id = p.event_id AND NOT (%s)',
            partition, partition_keeps(parent, until));
        EXECUTE format('DROP TABLE %I', attempts);
    END IF;
    EXECUTE format('DROP TABLE %I', partition);
    RETURN true;
END $$;

-- These functions run with the rights of the owner. Only the runtime role may call them; see
-- grants.sql.
REVOKE EXECUTE ON FUNCTION make_partition, kept_in_partition, drop_partition FROM PUBLIC;
