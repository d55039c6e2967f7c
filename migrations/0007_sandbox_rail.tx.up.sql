-- The sandbox rail: a payment rail played by this database. Only the rail reads or writes these tables, as the service
-- cannot look into a real rail.
CREATE TABLE sandbox_accounts (
    agreement_id text   COLLATE "C" PRIMARY KEY,
    behaviour    text   NOT NULL,
    opened_at    bigint NOT NULL
);

-- One row a key. An undecided debit may be cancelled until its time has come and a caller decides it; the other states
-- are final. A key that was cancelled before any debit came has neither agreement, amount nor currency.
CREATE TABLE sandbox_debits (
    amount       bigint,
    decided_at   bigint  NOT NULL,
    due_at       timestamptz,        -- of a debit that is or was undecided
    key          text    COLLATE "C" NOT NULL,
    agreement_id text    COLLATE "C",
    currency     text,
    status       text    NOT NULL,
    reason       text,
    CHECK (status IN ('succeeded', 'refused', 'undecided', 'cancelled')),
    CHECK (num_nonnulls(agreement_id, amount, currency) IN (0, 3)),
    CHECK (amount > 0),
    CHECK (status = 'cancelled' OR agreement_id IS NOT NULL)
);
CREATE INDEX sandbox_debits_undecided ON sandbox_debits (due_at) WHERE status = 'undecided';
ALTER TABLE sandbox_debits ADD PRIMARY KEY (key);

-- Faults of the sandbox rail, for all its accounts. Each ends by itself, in service time.
CREATE TABLE sandbox_faults (
    fault   text   COLLATE "C" PRIMARY KEY,
    ends_at bigint NOT NULL,
    CHECK (fault IN ('bankDown', 'answersLost'))
);
