-- Every piece of background work is a row here, written in the transaction of the state it belongs to, and deleted
-- when nothing is left to do. A task in Redis is only a wake-up for one of these rows.
--
--   waiting    dispatched_at IS NULL: goes out once service time reaches available_at
--   in flight  dispatched_at set: goes out again, one epoch on, if the database's time passes redispatch_after
CREATE TABLE outbox (
    id               uuid        PRIMARY KEY,
    kind             text        NOT NULL,
    queue            text        NOT NULL,
    organisation_id  uuid        NOT NULL,
    site_id          uuid        NOT NULL,
    subject_id       uuid        NOT NULL,
    first_row        int         NOT NULL DEFAULT 0,  -- a chunk's rows of the subject, both ends included
    last_row         int         NOT NULL DEFAULT 0,
    trace_id         text        NOT NULL DEFAULT '',
    available_at     bigint      NOT NULL,
    epoch            int         NOT NULL DEFAULT 0,
    dispatched_at    timestamptz,
    redispatch_after timestamptz
) WITH (fillfactor = 50);

-- Round-robin over organisations and Sites hops along this index, lane by lane, and never reads a backlog.
CREATE INDEX outbox_waiting ON outbox (queue, organisation_id, site_id, available_at, id) WHERE dispatched_at IS NULL;
CREATE INDEX outbox_oldest ON outbox (queue, available_at) WHERE dispatched_at IS NULL;
CREATE INDEX outbox_in_flight ON outbox (redispatch_after) WHERE dispatched_at IS NOT NULL;
CREATE INDEX outbox_lane_in_flight ON outbox (queue, organisation_id) WHERE dispatched_at IS NOT NULL;

-- Recurring work. The tick that moves next_run_at inserts the outbox row in the same transaction: one leader a tick,
-- whoever it is.
CREATE TABLE recurring_work (
    kind        text   PRIMARY KEY,
    next_run_at bigint NOT NULL DEFAULT 0
);
