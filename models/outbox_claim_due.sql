-- Claims due tasks of one queue for dispatch and returns them, for Store.ClaimDue. The statement
-- steps from lane to lane (organisation, Site) along the index outbox_waiting and takes the first
-- due tasks of each lane. It never reads the backlog behind them. Organisations with the fewest
-- tasks in flight come first, and within an organisation the Sites with the fewest. Two dispatchers
-- would pick the same tasks, so an advisory lock admits one at a time. The other gets no task.
--
--   :queue                    the queue
--   :most                     how many tasks one claim takes at most
--   :organisation_in_flight   how many tasks of one organisation may be in flight
--   :queue_in_flight          how many tasks of all organisations may be in flight
--   :min_room                 free capacity below which nothing is claimed
--   :claim_lease              ClaimLease in milliseconds
WITH RECURSIVE leader AS MATERIALIZED (
    -- The commit does not wait for the disk. If a crash undoes the claim, its tasks are dispatched
    -- again. leads: whether this transaction holds the lock.
    SELECT now, pg_try_advisory_xact_lock(hashtext('outbox:' || :queue)) AS leads,
        set_config('synchronous_commit', 'off', true)
    FROM (SELECT now FROM service_now) AS clock (now)
), in_flight AS MATERIALIZED (
    -- Tasks in flight by lane.
    SELECT organisation_id, site_id, count(*) AS n FROM tasks_leased
    WHERE (SELECT leads FROM leader) AND queue = :queue
    GROUP BY 1, 2
), organisation_load AS MATERIALIZED (
    SELECT organisation_id, sum(n) AS n FROM in_flight GROUP BY 1
), capacity AS MATERIALIZED (
    SELECT least(:most::int, :queue_in_flight::int - (SELECT coalesce(sum(n), 0) FROM in_flight)) AS free
), bound AS MATERIALIZED (
    -- The most tasks that this claim takes: none without the lock or below :min_room.
    SELECT CASE WHEN leads AND free >= :min_room::int THEN greatest(0, free) ELSE 0 END AS n FROM leader, capacity
), lanes (organisation_id, site_id, first_at) AS (
    -- Every lane with waiting tasks, and the time of its first task.
    (SELECT o.organisation_id, o.site_id, o.available_at FROM outbox o
     WHERE (SELECT n FROM bound) > 0 AND o.queue = :queue AND o.dispatched_at IS NULL ORDER BY 1, 2, 3 LIMIT 1)
    UNION ALL
    SELECT n.organisation_id, n.site_id, n.available_at FROM lanes l CROSS JOIN LATERAL (
        SELECT o.organisation_id, o.site_id, o.available_at FROM outbox o
        WHERE o.queue = :queue AND o.dispatched_at IS NULL
            AND (o.organisation_id, o.site_id) > (l.organisation_id, l.site_id)
        ORDER BY o.organisation_id, o.site_id, o.available_at LIMIT 1) n
), open AS MATERIALIZED (
    -- The lanes with a due task.
    SELECT organisation_id, site_id FROM lanes WHERE first_at <= (SELECT now FROM leader)
), lane_limit AS MATERIALIZED (
    -- The most tasks taken from one lane: twice an equal part of the bound, since shorter lanes
    -- leave capacity. The next claim takes the rest of longer lanes.
    SELECT least(n, :organisation_in_flight::int,
        1 + 2 * n / greatest(1, (SELECT count(*) FROM open)))::int AS n FROM bound
), due AS (
    -- The first due tasks of each lane. site_rank counts them from the Site's tasks in flight on.
    -- LIMIT 1000 tells the planner that a scan never reads all tasks of a lane.
    SELECT o.id, l.organisation_id, l.site_id, coalesce(f.n, 0)
           + row_number() OVER (PARTITION BY l.organisation_id, l.site_id ORDER BY o.available_at, o.id) AS site_rank
    FROM leader CROSS JOIN lane_limit CROSS JOIN open l LEFT JOIN in_flight f USING (organisation_id,
        site_id) CROSS JOIN LATERAL (
        SELECT id, available_at FROM (
            SELECT w.id, w.available_at FROM outbox w
            WHERE w.queue = :queue AND w.dispatched_at IS NULL AND w.organisation_id = l.organisation_id
                AND w.site_id = l.site_id
              AND w.available_at <= leader.now
            ORDER BY w.available_at, w.id LIMIT 1000) first
        LIMIT lane_limit.n) o
), ranked AS (
    -- An organisation's tasks alternate between its Sites. Tasks in flight count as earlier ranks.
    SELECT id, organisation_id,
           coalesce(c.n, 0) + row_number() OVER (PARTITION BY organisation_id ORDER BY site_rank,
               site_id) AS organisation_rank
    FROM due LEFT JOIN organisation_load c USING (organisation_id)
), picked AS (
    SELECT id FROM ranked WHERE organisation_rank <= :organisation_in_flight
    ORDER BY organisation_rank, organisation_id LIMIT (SELECT n FROM bound)
)
-- num_nulls tests "dispatched_at IS NULL" in a form that matches no partial index, so that the
-- planner looks the tasks up by id.
UPDATE outbox o SET dispatched_at = statement_timestamp(),
    redispatch_after = statement_timestamp() + :claim_lease * interval '1 ms',
       epoch = o.epoch + 1
WHERE o.id = ANY (ARRAY(SELECT id FROM picked)) AND num_nulls(o.dispatched_at) = 1
RETURNING o.id, o.kind, o.organisation_id, o.site_id, o.trace_id, o.epoch, o.last_row - o.first_row + 1 AS rows
