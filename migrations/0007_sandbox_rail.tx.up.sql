-- The sandbox rail: a payment rail simulated in this database. The service settles debits through
-- the rail adapter alone, because it cannot look into a real rail either. Sign-ups, faults,
-- retention and the audit of a sandbox use these tables directly.

-- The accounts of the customers who have signed up, by their agreements.
CREATE TABLE sandbox_accounts (
    agreement_id text   COLLATE "C" PRIMARY KEY,
    behaviour    text   NOT NULL,         -- how the account answers debits: models.Behaviour
    opened_at    bigint NOT NULL
);

-- One row per rail key. The first call after due_at decides an undecided debit; until then, the
-- debit can be cancelled. All other statuses are final. A key that was cancelled before its debit
-- arrived has no agreement, amount or currency.
CREATE TABLE sandbox_debits (
    amount       bigint,
    changed_at   bigint  NOT NULL,   -- of an undecided debit: when it arrived
    due_at       timestamptz,        -- when an undecided debit can be decided; stays set afterwards
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
CREATE INDEX sandbox_debits_age ON sandbox_debits (changed_at);
ALTER TABLE sandbox_debits ADD PRIMARY KEY (key);

-- The present faults of the sandbox rail, for all its accounts. Each ends by itself at ends_at.
CREATE TABLE sandbox_faults (
    fault   text   COLLATE "C" PRIMARY KEY,
    ends_at bigint NOT NULL,
    CHECK (fault IN ('bankDown', 'answersLost'))
);
