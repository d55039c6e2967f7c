-- Batches of debits, their rows, and the ledger of money movements.

CREATE TYPE batch_state AS ENUM ('inProgress', 'settled');
CREATE TYPE row_state AS ENUM ('pending', 'inProgress', 'settled');
CREATE TYPE row_outcome AS ENUM ('succeeded', 'customerNotActive', 'insufficientFunds', 'accountUnavailable',
    'limitExceeded', 'declinedByCustomer', 'declined', 'timedOut', 'unconfirmed', 'cancelled');

-- The generation of a batchReference is the number of batches that have used it. The rail keys of a
-- batch derive from both. A batch that is submitted again after the database has lost it thus has
-- the same keys. The row outlives its batches, so that a later batch gets new keys.
CREATE TABLE batch_references (
    site_id         uuid NOT NULL,
    batch_reference text NOT NULL COLLATE "C",
    generation      int  NOT NULL CHECK (generation >= 1),
    PRIMARY KEY (site_id, batch_reference)
);

-- One row per batch. Each statement that settles rows also updates the counters of their batch. A
-- later correction of a row leaves the counters unchanged.
CREATE TABLE batches (
    site_id          uuid        NOT NULL REFERENCES sites,
    id               uuid        NOT NULL,
    organisation_id  uuid        NOT NULL,
    batch_reference  text        NOT NULL COLLATE "C",
    generation       int         NOT NULL,
    epoch            int         NOT NULL,  -- of the database, at submission
    state            batch_state NOT NULL DEFAULT 'inProgress',
    row_count        int         NOT NULL,
    settled_count    int         NOT NULL DEFAULT 0,
    succeeded_count  int         NOT NULL DEFAULT 0,
    total_amount     bigint      NOT NULL,
    succeeded_amount bigint      NOT NULL DEFAULT 0,
    currency         char(3)     NOT NULL,
    submitted_at     bigint      NOT NULL,
    settle_by        bigint      NOT NULL,  -- the deadline
    settled_at       bigint,
    cancelled_at     bigint,                -- when it was cancelled; rows then end as cancelled, not timedOut
    attempts_over_at bigint,                -- when the rows were closed for which no debit call was made
    retry_of         text        COLLATE "C",  -- the batchReference of the batch whose rows this one retries
    retried_as       text        COLLATE "C",  -- the batchReference of the one batch that retries rows of this one
    fingerprint      bytea       NOT NULL,  -- SHA-256 of the canonical body
    extras           bytea,                 -- canonical JSON of the body's unknown fields
    trace_id         text        NOT NULL DEFAULT '',
    CHECK (settled_count BETWEEN 0 AND row_count AND succeeded_count BETWEEN 0 AND settled_count),
    CHECK ((state = 'settled') = (settled_count = row_count)),
    CHECK ((state = 'settled') = (settled_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500);
CREATE UNIQUE INDEX batches_reference ON batches (site_id, batch_reference);
CREATE INDEX batches_list ON batches (site_id, submitted_at DESC, id DESC);
CREATE INDEX batches_open_deadline ON batches (settle_by) WHERE settled_at IS NULL;
CREATE INDEX batches_unsent ON batches (settle_by) WHERE settled_at IS NULL AND attempts_over_at IS NULL;
CREATE INDEX batches_age ON batches (submitted_at);
ALTER TABLE batches ADD PRIMARY KEY (site_id, id);
CREATE TRIGGER batches_transitions AFTER UPDATE OF state ON batches
    FOR EACH ROW WHEN (OLD.state = 'settled' AND NEW.state <> 'settled')
    EXECUTE FUNCTION refuse_transition('state');

-- The planner inlines the following functions, so that they cost no call.

-- debit_phase computes the models.DebitPhase of a batch. No debit begins in the last
-- last_attempt_before milliseconds before the deadline.
CREATE FUNCTION debit_phase(now bigint, settle_by bigint, last_attempt_before bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    CASE WHEN now >= settle_by THEN 'confirm' WHEN now >= settle_by - last_attempt_before THEN 'close'
         ELSE 'attempt' END;

-- batch_cancelled reports whether the open rows of a batch are to be cancelled. The partner cancels
-- a batch; an operator, after a restore, all work from epochs below cancelled_before.
CREATE FUNCTION batch_cancelled(cancelled_at bigint, epoch int, cancelled_before int) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN cancelled_at IS NOT NULL OR epoch < cancelled_before;

-- batch_certain reports whether the database cannot have lost commits of a batch of this epoch. The
-- other arguments are results of current_epoch.
CREATE FUNCTION batch_certain(epoch int, present_epoch int, present_certain boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN epoch = present_epoch AND present_certain;

-- The rows of batches. The primary key is the only index, so that both updates of a row (claim and
-- settlement) are HOT: they write no index. Workers find rows through the outbox. There is no
-- foreign key: its check costs more than the insert, and rows are inserted only in the transaction
-- of their batch.
--
--   pending     no worker holds the row, and no known debit call can still debit it
--   inProgress  a worker has claimed the row, and has neither released nor settled it
--   settled     the outcome is final, but the service keeps asking the rail about an unconfirmed
--               row in doubt
CREATE TABLE batch_rows (
    site_id            uuid        NOT NULL,
    batch_id           uuid        NOT NULL,
    row_index          int         NOT NULL,
    attempts           int         NOT NULL DEFAULT 0,   -- debit calls; a claim counts its call in advance
    link_id            uuid,                             -- the customer link; bound once, never changed
    lease_token        uuid,
    lease_until        timestamptz,
    deferrals          int         NOT NULL DEFAULT 0,   -- results without a final outcome; sets the backoff
    amount             bigint      NOT NULL,
    next_attempt_at    bigint,                           -- when the next call is due; NULL: at once
    called_at          bigint,                           -- at or before the last rail call; NULL: take submitted_at
    settled_at         bigint,
    state              row_state   NOT NULL DEFAULT 'pending',
    outcome            row_outcome,
    corrected_outcome  row_outcome,                      -- the true outcome, if learned after settlement
    in_doubt           boolean     NOT NULL DEFAULT false,  -- an earlier debit call may lack its answer
    customer_reference text        NOT NULL COLLATE "C",
    row_reference      text        NOT NULL COLLATE "C",
    PRIMARY KEY (site_id, batch_id, row_index),
    -- Every update evaluates these checks, so they use cheap operators only: no function, no CASE.
    CHECK ((lease_token IS NULL) = (lease_until IS NULL)),
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK ((outcome IS NULL) = (settled_at IS NULL)),
    CHECK (corrected_outcome IS NULL OR outcome IS NOT NULL AND NOT in_doubt),
    CHECK (NOT in_doubt OR state = 'inProgress' OR outcome = 'unconfirmed'),
    CHECK (lease_token IS NULL OR state <> 'pending')
) PARTITION BY RANGE (batch_id);
CREATE TABLE batch_rows_default PARTITION OF batch_rows DEFAULT
    WITH (fillfactor = 32); -- leaves space for all three versions of a row: submitted, claimed, settled
SELECT make_first_partitions('batch_rows', 'week', 2);
-- A settled row keeps its outcome. A later answer of the rail becomes its corrected_outcome.
CREATE TRIGGER batch_rows_transitions AFTER UPDATE OF state, outcome ON batch_rows
    FOR EACH ROW WHEN (OLD.state = 'settled' AND (NEW.state <> 'settled' OR NEW.outcome <> OLD.outcome))
    EXECUTE FUNCTION refuse_transition('state', 'outcome');

-- The double-entry ledger. An entry moves an amount from one account to another, so the accounts
-- always sum to zero. The rail key is unique for ever, so no debit is recorded twice. Entries
-- outlive their batch or payment intent, so they copy its references.
CREATE TYPE ledger_account AS ENUM ('railClearing', 'sitePayable');
CREATE TABLE ledger_entries (
    rail_key           text           COLLATE "C" NOT NULL CHECK (left(rail_key, 3) IN ('r1_', 'p1_')),
    site_id            uuid           NOT NULL,
    recorded_at        bigint         NOT NULL,
    debit_account      ledger_account NOT NULL DEFAULT 'railClearing',
    credit_account     ledger_account NOT NULL DEFAULT 'sitePayable',
    amount             bigint         NOT NULL CHECK (amount > 0),
    currency           char(3)        NOT NULL,
    batch_reference    text           COLLATE "C",
    row_reference      text           COLLATE "C",
    customer_reference text           COLLATE "C",
    link_id            uuid,                   -- the link whose agreement was debited; NULL for payments
    payment_intent_id  uuid,
    order_id           text           COLLATE "C",
    CHECK (debit_account <> credit_account),
    CHECK (num_nonnulls(batch_reference, row_reference, customer_reference) IN (0, 3)),
    CHECK ((batch_reference IS NULL) <> (payment_intent_id IS NULL)
        AND (order_id IS NULL OR payment_intent_id IS NOT NULL))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02); -- frequent vacuums allow index-only scans for totals
CREATE INDEX ledger_entries_site ON ledger_entries (site_id, recorded_at DESC, rail_key DESC) INCLUDE (amount);
ALTER TABLE ledger_entries ADD PRIMARY KEY (rail_key);
