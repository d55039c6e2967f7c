-- Background work. Every piece is a row here, written in the transaction of the state that it belongs to, and deleted
-- when nothing is left to do. A task in Redis is a wake-up for one of these rows.
--
--   waiting    dispatched_at IS NULL: goes out once service time reaches available_at
--   in flight  dispatched_at set: goes out again, one epoch on, once the server's time passes redispatch_after
--
-- A webhook delivery that waits in Redis for its next attempt is in flight with an available_at to come. It does not
-- count against its organisation's cap, and goes out at once if the service's clock is moved.
CREATE TABLE outbox (
    id               uuid        NOT NULL,
    kind             text        NOT NULL,
    queue            text        NOT NULL,
    organisation_id  uuid        NOT NULL,
    site_id          uuid        NOT NULL,
    subject_id       uuid        NOT NULL,
    first_row        int         NOT NULL DEFAULT 0,  -- a chunk's rows of the subject, both ends included
    last_row         int         NOT NULL DEFAULT 0,
    trace_id         text        NOT NULL DEFAULT '',
    available_at     bigint      NOT NULL,
    epoch            int         NOT NULL DEFAULT 0,  -- how many times the task has gone out
    dispatched_at    timestamptz,
    redispatch_after timestamptz,
    CHECK ((dispatched_at IS NULL) = (redispatch_after IS NULL))
) WITH (fillfactor = 50,
    -- A task lives for a second, and four of its versions with it. The dispatcher's scans must not step over the dead
    -- ones of a large backlog.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);

-- Round-robin over organisations and Sites hops along outbox_waiting, lane by lane, and never reads a backlog. Questions
-- about a whole queue name redispatch_after in place of dispatched_at, so that no plan can take the wrong index.
CREATE INDEX outbox_waiting ON outbox (queue, organisation_id, site_id, available_at, id) WHERE dispatched_at IS NULL;
CREATE INDEX outbox_lane_in_flight ON outbox (queue, organisation_id, available_at) WHERE dispatched_at IS NOT NULL;
CREATE INDEX outbox_retries ON outbox (available_at) WHERE dispatched_at IS NOT NULL AND kind = 'deliverWebhook';
CREATE INDEX outbox_oldest ON outbox (queue, available_at) WHERE redispatch_after IS NULL;
CREATE INDEX outbox_in_flight ON outbox (redispatch_after) WHERE redispatch_after IS NOT NULL;
ALTER TABLE outbox ADD PRIMARY KEY (id);

-- Recurring work. The transaction that moves next_run_at inserts the outbox row, so that each tick has one leader. A tick
-- whose predecessor is still at work is left out.
CREATE TABLE recurring_work (
    kind        text   PRIMARY KEY,
    next_run_at bigint NOT NULL DEFAULT 0,
    task_id     uuid   NOT NULL  -- of the last tick, in the outbox
);
