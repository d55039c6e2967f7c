-- The outbox holds all background work: one row for each task. The row is written in the
-- transaction that makes the task necessary, and deleted when the task is done. A task in Redis is
-- only a wake-up for its row.
--
--   waiting    dispatched_at IS NULL. The task is dispatched once service time reaches
--              available_at.
--   in flight  dispatched_at is set. The task is dispatched again if its row still exists once
--              server time passes redispatch_after.
--
-- A webhook delivery that waits in Redis for its next attempt is in flight, with an available_at in
-- the future. It does not count against its organisation's cap. If the sandbox's clock is moved
-- past available_at, the task is dispatched at once.
CREATE TABLE outbox (
    id               uuid        NOT NULL,
    kind             text        NOT NULL,
    queue            text        NOT NULL,
    organisation_id  uuid        NOT NULL,
    site_id          uuid        NOT NULL,
    subject_id       uuid        NOT NULL,            -- what the task is about, such as a batch; depends on kind
    first_row        int         NOT NULL DEFAULT 0,  -- the chunk's range of batch rows, both ends inclusive
    last_row         int         NOT NULL DEFAULT 0,
    trace_id         text        NOT NULL DEFAULT '',
    available_at     bigint      NOT NULL,
    epoch            int         NOT NULL DEFAULT 0,  -- how many times the task was dispatched
    dispatched_at    timestamptz,
    redispatch_after timestamptz,                     -- the end of the task's lease
    CHECK ((dispatched_at IS NULL) = (redispatch_after IS NULL))
) WITH (fillfactor = 50,
    -- Rows are short-lived and updated several times. Frequent vacuums keep dead versions out of
    -- the dispatcher's scans.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);

-- The dispatcher alternates between lanes: a lane is the waiting tasks of one Site in one queue. It
-- steps along outbox_waiting from lane to lane, so it never reads a whole backlog. Statements about
-- a whole queue test redispatch_after in place of dispatched_at; both are NULL together. The
-- planner then cannot choose a per-lane index.
CREATE INDEX outbox_waiting ON outbox (queue, organisation_id, site_id, available_at, id) WHERE dispatched_at IS NULL;
CREATE INDEX outbox_retries ON outbox (available_at) WHERE dispatched_at IS NOT NULL AND kind = 'deliverWebhook';
CREATE INDEX outbox_oldest ON outbox (queue, available_at) WHERE redispatch_after IS NULL;
CREATE INDEX outbox_in_flight ON outbox (queue, redispatch_after) WHERE redispatch_after IS NOT NULL;
-- Counts an organisation's tasks in flight. Of indexes that it rates alike, the planner takes the
-- newest, so this index is created after outbox_in_flight.
CREATE INDEX outbox_lane_in_flight ON outbox (queue, organisation_id, redispatch_after) WHERE dispatched_at IS NOT NULL;
ALTER TABLE outbox ADD PRIMARY KEY (id);

-- The tasks in flight, except webhook deliveries that wait in Redis for their next attempt. The
-- lease of a due task ends within 30 seconds: a later end shows such a delivery. Another 10 seconds
-- allow for a difference between the clocks of a server and its standby.
CREATE VIEW tasks_in_flight AS
SELECT id, queue, organisation_id, site_id, dispatched_at, redispatch_after FROM outbox
WHERE redispatch_after <= statement_timestamp() + interval '40 seconds'
  AND available_at <= (SELECT now FROM service_now);

-- The tasks in flight that count against the caps of organisations and queues. The lower bound
-- skips the entries of finished tasks, which the indexes keep while an old transaction is open. It
-- hides no task that counts: workers make a task due again well within 15 seconds after its lease,
-- and without workers no debit or webhook is claimed.
CREATE VIEW tasks_leased AS
SELECT id, queue, organisation_id, site_id, dispatched_at FROM tasks_in_flight
WHERE redispatch_after >= statement_timestamp() - interval '15 seconds';

-- waiting_lanes returns lanes with waiting tasks, and the available_at of each lane's first task.
-- It takes one step in the index outbox_waiting for each lane.
--
--   queues  the queues to look at
--   sites   how many lanes of each queue it returns at most: the first in the order of the index
CREATE FUNCTION waiting_lanes(queues text[], sites int)
RETURNS TABLE (queue text, organisation_id uuid, site_id uuid, oldest_at bigint) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE lanes (n, queue, organisation_id, site_id, oldest_at) AS (
        SELECT 1, q.queue, first.organisation_id, first.site_id, first.available_at
        FROM unnest(queues) AS q (queue) CROSS JOIN LATERAL (
            SELECT o.organisation_id, o.site_id, o.available_at FROM outbox o
            WHERE o.dispatched_at IS NULL AND o.queue = q.queue
            ORDER BY o.organisation_id, o.site_id, o.available_at LIMIT 1) first
        UNION ALL
        SELECT l.n + 1, l.queue, next.organisation_id, next.site_id, next.available_at
        FROM lanes l CROSS JOIN LATERAL (
            SELECT o.organisation_id, o.site_id, o.available_at FROM outbox o
            WHERE o.dispatched_at IS NULL AND o.queue = l.queue
              AND (o.organisation_id, o.site_id) > (l.organisation_id, l.site_id)
            ORDER BY o.organisation_id, o.site_id, o.available_at LIMIT 1) next
        WHERE l.n < sites
    )
    SELECT l.queue, l.organisation_id, l.site_id, l.oldest_at FROM lanes l
$$;

-- The kinds of recurring tasks. One statement advances next_run_at and inserts the outbox row, so
-- that exactly one process starts each run. A run is skipped while the task of an earlier run still
-- exists.
CREATE TABLE recurring_work (
    kind        text   PRIMARY KEY,
    next_run_at bigint NOT NULL DEFAULT 0,
    task_id     uuid   NOT NULL  -- the outbox id of the last run's task
);

-- Pauses by operators. A row exists while its pause lasts.
--
-- No debit begins for a paused organisation's batches. Pending rows wait until no debit may
-- begin any more: models.LastAttemptBefore ahead of the deadline. Rows in doubt are still looked
-- up, and every row still settles by its deadline.
--
-- The statement that postpones a task locks the pause's row until its commit. A resumption deletes
-- the row, and so waits for that commit. The task that the resumption adds therefore finds every
-- postponed task.
CREATE TABLE debit_pauses (
    organisation_id uuid   PRIMARY KEY REFERENCES organisations,
    paused_at       bigint NOT NULL,
    paused_by       text   NOT NULL,  -- the operator
    reason          text   NOT NULL
);

-- A paused queue dispatches no task. The queue of sweeps cannot be paused: sweeps close rows at
-- their deadlines.
CREATE TABLE queue_pauses (
    queue     text   PRIMARY KEY CHECK (queue IN ('checkout', 'debits', 'webhooks')),
    paused_at bigint NOT NULL,
    paused_by text   NOT NULL,  -- the operator
    reason    text   NOT NULL
);
