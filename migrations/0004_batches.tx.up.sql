CREATE TYPE batch_state AS ENUM ('inProgress', 'settled');
CREATE TYPE row_state AS ENUM ('pending', 'inProgress', 'settled');
CREATE TYPE row_outcome AS ENUM ('succeeded', 'customerNotActive', 'insufficientFunds', 'accountUnavailable',
    'limitExceeded', 'declinedByCustomer', 'declined', 'timedOut', 'unconfirmed', 'cancelled');

-- The counters are moved by the statement that settles rows, from the rows it returned, and by nothing else.
CREATE TABLE batches (
    site_id          uuid        NOT NULL REFERENCES sites,
    id               uuid        NOT NULL,
    organisation_id  uuid        NOT NULL,
    batch_reference  text        NOT NULL COLLATE "C",
    state            batch_state NOT NULL DEFAULT 'inProgress',
    row_count        int         NOT NULL,
    settled_count    int         NOT NULL DEFAULT 0,
    succeeded_count  int         NOT NULL DEFAULT 0,
    total_amount     bigint      NOT NULL,
    succeeded_amount bigint      NOT NULL DEFAULT 0,
    currency         char(3)     NOT NULL,
    submitted_at     bigint      NOT NULL,
    settle_by        bigint      NOT NULL,
    settled_at       bigint,
    cancelled_at     bigint,                -- rows that come back unsettled after this end as cancelled
    fingerprint      bytea       NOT NULL,  -- SHA-256 of the canonical body
    extras           bytea,                 -- canonical JSON of what the body had beyond the known fields
    trace_id         text        NOT NULL DEFAULT '',
    PRIMARY KEY (site_id, id),
    CHECK (settled_count BETWEEN 0 AND row_count AND succeeded_count BETWEEN 0 AND settled_count),
    CHECK ((state = 'settled') = (settled_count = row_count))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX batches_reference ON batches (site_id, batch_reference);
CREATE INDEX batches_list ON batches (site_id, submitted_at DESC, id DESC);
CREATE INDEX batches_open_deadline ON batches (settle_by) WHERE settled_at IS NULL;
CREATE INDEX batches_age ON batches (submitted_at);

-- A row's name inside the service is (batch, index); its rail key derives from that. Nothing here but the primary
-- key is indexed, so that a row's two updates stay on its page (HOT); work finds its rows through the outbox. No
-- foreign keys: rows are only ever written beside their batch, and the check would cost more than the insert.
CREATE TABLE batch_rows (
    site_id            uuid        NOT NULL,
    batch_id           uuid        NOT NULL,
    row_index          int         NOT NULL,
    attempts           int         NOT NULL DEFAULT 0,   -- debit calls made, or begun by a worker that died
    link_id            uuid,                             -- bound once, never changed
    lease_token        uuid,
    lease_until        timestamptz,                      -- real time
    deferrals          int         NOT NULL DEFAULT 0,   -- tries that brought no final answer
    amount             bigint      NOT NULL,
    next_attempt_at    bigint,                           -- service time: the next debit, or look-up if in doubt
    settled_at         bigint,
    state              row_state   NOT NULL DEFAULT 'pending',
    outcome            row_outcome,
    corrected_outcome  row_outcome,
    in_doubt           boolean     NOT NULL DEFAULT false,  -- a debit may have been made, and the rail has not said
    customer_reference text        NOT NULL COLLATE "C",
    row_reference      text        NOT NULL COLLATE "C",
    PRIMARY KEY (site_id, batch_id, row_index),
    CHECK ((state = 'settled') = (outcome IS NOT NULL))
) WITH (fillfactor = 60);

-- Double entry: the entries of one source sum to zero. What makes a source unique for ever is the primary key.
CREATE TYPE ledger_account AS ENUM ('railClearing', 'sitePayable');
CREATE TABLE ledger_entries (
    source_id    uuid           NOT NULL,  -- the batch
    source_index int            NOT NULL,  -- its row
    account      ledger_account NOT NULL,
    site_id      uuid           NOT NULL,
    currency     char(3)        NOT NULL,
    amount       bigint         NOT NULL CHECK (amount <> 0),  -- debit positive, credit negative
    recorded_at  bigint         NOT NULL,
    PRIMARY KEY (source_id, source_index, account)
);
