-- Reconciliation: the comparison of the ledger with the rail's list of debits, and the audit of the
-- books.

-- How far the comparison has come. Ledger and rail are compared up to compared_to.
CREATE TABLE reconciliation (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    compared_to bigint,                     -- NULL: nothing has been compared
    since       bigint  NOT NULL DEFAULT 0  -- when the present rail began; it knows no earlier debits
);
INSERT INTO reconciliation DEFAULT VALUES;

-- batch_key computes models.BatchKey: a digest of fields, each preceded by its length (41 for a
-- Site's id, with its prefix). An index requires an IMMUTABLE function. convert_to is only STABLE,
-- but in a UTF-8 database its results never change.
CREATE FUNCTION batch_key(site uuid, batch_reference text, generation int) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN sha256(
    int8send(41) || convert_to('site_' || site, 'UTF8')
    || int8send(octet_length(batch_reference)) || convert_to(batch_reference, 'UTF8')
    || int8send(length(generation::text)) || convert_to(generation::text, 'UTF8'));

-- Finds the batch of a row's rail key, which holds the first 16 bytes of the batch's key. No update
-- of a batch changes the indexed columns, so the index does not prevent HOT updates.
CREATE INDEX batches_rail_key ON batches (substr(batch_key(site_id, batch_reference, generation), 1, 16));

-- The unresolved differences that the comparison has found: one row for each rail key. A difference
-- of kind inFlight is expected to pass. A difference of another kind has an open alert of that
-- kind, unless an operator has closed the alert. The kinds are those of models.DifferenceKind.
CREATE TABLE reconciliation_differences (
    rail_key      text   COLLATE "C" NOT NULL,
    kind          text   NOT NULL,
    site_id       uuid,                     -- NULL: unknown
    debited_at    bigint,                   -- by the rail's clock; NULL: not debited, or unknown
    detail        text   NOT NULL,
    found_at      bigint NOT NULL,
    next_check_at bigint NOT NULL
);
CREATE INDEX reconciliation_differences_due ON reconciliation_differences (next_check_at);
CREATE INDEX reconciliation_differences_age ON reconciliation_differences (found_at);
ALTER TABLE reconciliation_differences ADD PRIMARY KEY (rail_key);

-- The progress of the recurring audit. A pass checks the books window by window, from the oldest
-- kept batches to the present.
CREATE TABLE audit_pass (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    position  bigint,                          -- the beginning of the next window, in service time; NULL: no pass runs
    window_ms bigint  NOT NULL DEFAULT 3600000,    -- the length of the next window
    ended_at  bigint  NOT NULL DEFAULT svc_now() -- of the last whole pass; before the first, of the migration
);
INSERT INTO audit_pass DEFAULT VALUES;

-- The rail's answers to the workers, counted by minute of server time, for the operators' pages.
-- Each worker adds its counts every few seconds and drops those older than an hour.
CREATE TABLE rail_minutes (
    minute  bigint NOT NULL,  -- Unix time in minutes
    call    text   NOT NULL,  -- debit, lookup or cancel
    status  text   NOT NULL,  -- of the answers: rail.Status
    answers bigint NOT NULL,  -- their number
    last_at timestamptz NOT NULL,
    PRIMARY KEY (minute, call, status)
);
