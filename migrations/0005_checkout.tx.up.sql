-- Checkout: payment intents and their transactions.

CREATE TYPE intent_state AS ENUM ('created', 'pending', 'final');
CREATE TYPE transaction_status AS ENUM ('Settled', 'Declined', 'Failed', 'Cancelled', 'Expired');

-- One row per payment intent, which also holds the intent's only transaction, if there is one.
-- Every change of state is a conditional update of this row, so that only one of payment, expiry
-- and cancellation succeeds.
--
--   created  a customer may start to pay
--   pending  a customer has started to pay. Or closing_as is set: the payment intent then ends with
--            that status, once the rail confirms that no payment was made in an earlier epoch.
--   final    transaction_status is set
CREATE TABLE payment_intents (
    site_id            uuid         NOT NULL REFERENCES sites,
    id                 uuid         NOT NULL,
    organisation_id    uuid         NOT NULL,
    epoch              int          NOT NULL,              -- of the database, at creation
    code               text         NOT NULL COLLATE "C",  -- the code in the QR content; random
    state              intent_state NOT NULL DEFAULT 'created',
    closing_as         transaction_status CHECK (closing_as IN ('Cancelled', 'Expired')),
    transaction_status transaction_status,
    status_reason      row_outcome,                        -- why a transaction was declined
    amount             bigint       NOT NULL CHECK (amount > 0),
    currency           char(3)      NOT NULL,
    order_id           text         COLLATE "C",
    line_items         jsonb,
    return_url         text,
    qr_code_format     text         NOT NULL,
    created_at         bigint       NOT NULL,
    expires_at         bigint       NOT NULL,              -- from this millisecond on, no payment can start
    final_at           bigint,
    trace_id           text         NOT NULL DEFAULT '',

    -- The transaction, set when the customer starts to pay.
    transaction_id     uuid,
    party              bytea,                              -- customer and agreement, sealed; empty: erased
    discounts          jsonb,
    amount_charged     bigint       CHECK (amount_charged BETWEEN 0 AND amount),
    started_at         bigint,
    attempts           int          NOT NULL DEFAULT 0,    -- debit calls; a claim counts its call in advance
    deferrals          int          NOT NULL DEFAULT 0,    -- results without a final status; sets the backoff
    called_at          bigint,                             -- at or before the last rail call; NULL: take created_at
    in_doubt           boolean      NOT NULL DEFAULT false,  -- a debit may exist that the rail has not confirmed
    next_attempt_at    bigint,                             -- when the next call is due; NULL: at once
    lease_token        uuid,
    lease_until        timestamptz,

    CHECK ((state = 'final') = (transaction_status IS NOT NULL)),
    CHECK ((state = 'final') = (final_at IS NOT NULL)),
    CHECK ((lease_token IS NULL) = (lease_until IS NULL) AND (lease_token IS NULL OR state = 'pending')),
    CHECK (closing_as IS NULL OR state = 'pending'),
    CHECK (CASE WHEN state = 'created' OR transaction_status IN ('Cancelled', 'Expired') OR closing_as IS NOT NULL
                THEN transaction_id IS NULL
                ELSE num_nulls(transaction_id, party, amount_charged, started_at) = 0 END)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX payment_intents_code ON payment_intents (code);
-- Finds a payment intent of any Site by its id. Ids grow with time, so that new entries join at the
-- end of the index.
CREATE INDEX payment_intents_id ON payment_intents (id);
CREATE INDEX payment_intents_due_expiry ON payment_intents (expires_at, site_id) WHERE state = 'created';
CREATE INDEX payment_intents_age ON payment_intents (final_at) WHERE final_at IS NOT NULL;
-- Lists of a Site, newest first: all payment intents, those of an order, open ones by state, and
-- final ones by status.
CREATE INDEX payment_intents_list ON payment_intents (site_id, created_at DESC, id DESC);
CREATE INDEX payment_intents_list_by_order ON payment_intents (site_id, order_id, created_at DESC, id DESC)
    WHERE order_id IS NOT NULL;
CREATE INDEX payment_intents_list_open ON payment_intents (site_id, state, created_at DESC, id DESC)
    WHERE state IN ('created', 'pending');
CREATE INDEX payment_intents_list_by_status ON payment_intents (site_id, transaction_status, created_at DESC, id DESC)
    WHERE transaction_status IS NOT NULL;
ALTER TABLE payment_intents ADD PRIMARY KEY (site_id, id);
-- A final payment intent keeps its status.
CREATE TRIGGER payment_intents_transitions AFTER UPDATE OF state, transaction_status ON payment_intents
    FOR EACH ROW WHEN (OLD.state <> NEW.state AND (OLD.state = 'final' OR NEW.state = 'created')
        OR NEW.transaction_status <> OLD.transaction_status)
    EXECUTE FUNCTION refuse_transition('state', 'transaction_status');

-- transaction_phase computes the models.DebitPhase of a pending payment intent. The phase is
-- 'close' if the intent is closing, if an operator has cancelled its epoch, or once answer_within
-- milliseconds have passed since the start of the payment. Otherwise it is 'attempt'. The planner
-- inlines the function.
CREATE FUNCTION transaction_phase(now bigint, closing_as transaction_status, started_at bigint, answer_within bigint,
    epoch int, cancelled_before int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    CASE WHEN closing_as IS NOT NULL OR epoch < cancelled_before OR now >= started_at + answer_within THEN 'close'
         ELSE 'attempt' END;

-- payment_rail_key returns the rail key of a payment intent, as models.PaymentRailKey does. The
-- planner inlines the function.
CREATE FUNCTION payment_rail_key(intent uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 'p1_pi_' || intent::text;
