-- The outbox holds all background work. Each task is a row, written in the transaction of the state
-- that it belongs to and deleted when it is done. A task in Redis is a wake-up for an outbox row.
--
--   waiting    dispatched_at IS NULL: dispatched once service time reaches available_at
--   in flight  dispatched_at is set: dispatched again in the next epoch, once server time passes
--              redispatch_after
--
-- A webhook delivery that waits in Redis for its next attempt is in flight, with an available_at in
-- the future. It does not count against its organisation's cap. It is dispatched at once if the
-- sandbox's clock is moved.
CREATE TABLE outbox (
    id               uuid        NOT NULL,
    kind             text        NOT NULL,
    queue            text        NOT NULL,
    organisation_id  uuid        NOT NULL,
    site_id          uuid        NOT NULL,
    subject_id       uuid        NOT NULL,
    first_row        int         NOT NULL DEFAULT 0,  -- the chunk's range of batch rows, both ends inclusive
    last_row         int         NOT NULL DEFAULT 0,
    trace_id         text        NOT NULL DEFAULT '',
    available_at     bigint      NOT NULL,
    epoch            int         NOT NULL DEFAULT 0,  -- how many times the task was dispatched
    dispatched_at    timestamptz,
    redispatch_after timestamptz,
    CHECK ((dispatched_at IS NULL) = (redispatch_after IS NULL))
) WITH (fillfactor = 50,
    -- Rows are short-lived and updated several times. Frequent vacuums keep dead versions out of
    -- the dispatcher's scans.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);

-- The dispatcher's round-robin over organisations and Sites skips along outbox_waiting from lane to
-- lane, so it never reads a whole backlog. A lane is one Site's waiting work in a queue. Statements
-- about a whole queue test redispatch_after instead of dispatched_at, so that the planner cannot
-- choose a per-lane index.
CREATE INDEX outbox_waiting ON outbox (queue, organisation_id, site_id, available_at, id) WHERE dispatched_at IS NULL;
CREATE INDEX outbox_retries ON outbox (available_at) WHERE dispatched_at IS NOT NULL AND kind = 'deliverWebhook';
CREATE INDEX outbox_oldest ON outbox (queue, available_at) WHERE redispatch_after IS NULL;
CREATE INDEX outbox_in_flight ON outbox (queue, redispatch_after) WHERE redispatch_after IS NOT NULL;
-- Created after outbox_in_flight: an organisation's tasks are counted by the newer of two indexes
-- that the planner rates alike.
CREATE INDEX outbox_lane_in_flight ON outbox (queue, organisation_id, redispatch_after) WHERE dispatched_at IS NOT NULL;
ALTER TABLE outbox ADD PRIMARY KEY (id);

-- The tasks in flight but for the webhook retries that wait in Redis. The lease of a due task ends
-- within 30 seconds; 10 more are for clocks of a server and its standby that differ.
CREATE VIEW tasks_in_flight AS
SELECT id, queue, organisation_id, site_id, dispatched_at, redispatch_after FROM outbox
WHERE redispatch_after <= statement_timestamp() + interval '40 seconds'
  AND available_at <= (SELECT now FROM service_now);

-- The tasks in flight that count against caps. While an old transaction is open, the indexes keep
-- every task since; this view reads the latest alone. While a worker runs, a task whose lease has
-- ended is made due again well within 15 seconds. Without a worker, nothing is claimed.
CREATE VIEW tasks_leased AS
SELECT id, queue, organisation_id, site_id, dispatched_at FROM tasks_in_flight
WHERE redispatch_after >= statement_timestamp() - interval '15 seconds';

-- Recurring work. The transaction that advances next_run_at also inserts the outbox row, so that
-- each tick has one leader. A tick is skipped while the previous tick's task still exists.
CREATE TABLE recurring_work (
    kind        text   PRIMARY KEY,
    next_run_at bigint NOT NULL DEFAULT 0,
    task_id     uuid   NOT NULL  -- the outbox id of the last tick's task
);

-- Pauses by operators. A row exists while its pause lasts.
--
-- A paused organisation's batches make no debit call. Its tasks wait for the end of the time for
-- attempts; rows in doubt are still looked up, and every row still settles by its deadline. The
-- task that ends a run locks this row before it postpones its task, and the resumption deletes the
-- row, so that the resumption's task finds every postponed task.
CREATE TABLE debit_pauses (
    organisation_id uuid   PRIMARY KEY REFERENCES organisations,
    paused_at       bigint NOT NULL,
    paused_by       text   NOT NULL,  -- the operator
    reason          text   NOT NULL
);

-- A paused queue dispatches no task. Sweeps close rows at their deadlines and cannot be paused.
CREATE TABLE queue_pauses (
    queue     text   PRIMARY KEY CHECK (queue IN ('checkout', 'debits', 'webhooks')),
    paused_at bigint NOT NULL,
    paused_by text   NOT NULL,  -- the operator
    reason    text   NOT NULL
);
