-- The sandbox rail: a payment rail played by this database. Nothing else reads or writes these tables, as
-- nothing else can look into a real rail.
CREATE TABLE sandbox_accounts (
    agreement_id text   PRIMARY KEY,
    behaviour    text   NOT NULL,
    opened_at    bigint NOT NULL
);

CREATE TABLE sandbox_debits (
    key          text    PRIMARY KEY,
    agreement_id text    NOT NULL,
    amount       bigint  NOT NULL,
    currency     char(3) NOT NULL,
    status       text    NOT NULL CHECK (status IN ('succeeded', 'refused', 'cancelled')),
    reason       text,
    decided_at   bigint  NOT NULL
);
CREATE INDEX sandbox_debits_agreement ON sandbox_debits (agreement_id);
