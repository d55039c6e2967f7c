-- Store.ClaimChunk claims the due rows in one part of a task's chunk, except for rows under a
-- lease. Before the deadline, these are the pending rows, and the rows in progress, which are in
-- doubt. After it, these are the unconfirmed rows in doubt.
--
-- The time for attempts ends LastAttemptBefore ahead of the deadline. From then on, a pending row
-- with an earlier debit call is in doubt as well: only the rail can close it. While the
-- organisation's debits are paused, pending rows wait for the end of the time for attempts, unless
-- their batch is cancelled.
--
-- The one result row has the chunk, and one array for each column of the claimed rows. There is no
-- row if the task or its batch is gone.
--
--   :task, :lease        the task's id and the lease token
--   :part_first          first row of the part, counted from 0 within the chunk
--   :part_rows           number of rows of the part
--   :row_lease, :queued_lease, :last_attempt_before, :rail_memory
--                        RowLease, QueuedLease, LastAttemptBefore, RailMemory, in milliseconds
WITH present AS MATERIALIZED (
    SELECT e.*, (SELECT now FROM service_now) AS now, statement_timestamp() AS server_now
    FROM current_epoch(:rail_memory) e
), chunk AS MATERIALIZED (
    -- earlier_epoch: the batch began in an earlier epoch, so that later commits of it may be lost.
    SELECT o.id AS task, b.site_id, b.id, b.organisation_id, b.trace_id, b.currency, b.batch_reference, b.generation,
           batch_cancelled(b.cancelled_at, b.epoch, present.cancelled_before) AS cancelled, b.submitted_at,
           b.epoch < present.epoch AS earlier_epoch, batch_certain(b.epoch, present.epoch, present.certain) AS certain,
           b.epoch < present.held_before AS held, present.epoch,
           EXISTS (SELECT FROM debit_pauses d WHERE d.organisation_id = b.organisation_id) AS paused,
           o.first_row, o.last_row, o.first_row + :part_first::int AS part_first,
           least(o.last_row, o.first_row + :part_first::int + :part_rows::int - 1) AS part_last,
           present.now, present.server_now,
           debit_phase(present.now, b.settle_by, :last_attempt_before) AS phase
    FROM present CROSS JOIN outbox o JOIN batches b ON b.site_id = o.site_id AND b.id = o.subject_id
    WHERE o.id = :task
), claimed AS (
    -- The claim counts its debit call in advance, so that a crash of the worker cannot lose the
    -- count.
    UPDATE batch_rows r SET lease_token = :lease, lease_until = c.server_now + :row_lease * interval '1 ms',
        in_doubt = r.state <> 'pending' OR c.earlier_epoch OR c.phase <> 'attempt' AND r.attempts > 0,
        attempts = r.attempts
            + CASE WHEN r.state = 'pending' AND NOT c.earlier_epoch AND c.phase = 'attempt' THEN 1 ELSE 0 END,
        called_at = CASE WHEN r.state = 'pending' AND NOT c.earlier_epoch AND c.phase = 'attempt' THEN c.now
                         ELSE r.called_at END,
        state = CASE WHEN r.state = 'settled' THEN r.state ELSE 'inProgress' END
    FROM chunk c
    WHERE r.site_id = c.site_id AND r.batch_id = c.id AND r.row_index BETWEEN c.part_first AND c.part_last
      AND NOT c.held AND NOT (c.paused AND NOT c.cancelled AND r.state = 'pending' AND c.phase = 'attempt')
      AND (r.lease_until IS NULL OR r.lease_until <= c.server_now)
      AND (r.state <> 'settled' AND c.phase <> 'confirm' OR r.state = 'settled' AND r.in_doubt)
      AND (coalesce(r.next_attempt_at, 0) <= c.now OR c.phase = 'close' AND r.state = 'pending')
    RETURNING r.site_id, r.row_index, r.customer_reference, r.row_reference, r.amount, r.in_doubt, r.state,
              r.deferrals, r.link_id, r.attempts > 1 AS called_before,
              coalesce(r.called_at, c.submitted_at) + :rail_memory <= c.now AS forgotten
), rows AS MATERIALIZED (
    -- One row of arrays costs less than many rows.
    SELECT count(*) AS n, array_agg(r.row_index) AS row_index, array_agg(r.customer_reference) AS customer_reference,
           array_agg(r.row_reference) AS row_reference, array_agg(r.amount) AS amount,
           array_agg(r.in_doubt) AS in_doubt,
           array_agg(r.state = 'settled') AS settled, array_agg(r.called_before) AS called_before,
           array_agg(r.forgotten) AS forgotten, array_agg(r.deferrals) AS deferrals,
           array_agg(r.link_id) AS link_id, array_agg(coalesce(l.state = 'linked', false)) AS linked,
           array_agg(l.party) AS party
    FROM claimed r LEFT JOIN customer_links l ON l.site_id = r.site_id AND l.id = r.link_id
), task_lease AS (
    -- Sets the task's lease to the rows' lease, unless it already ends between RowLease and
    -- QueuedLease from now. Locks rows first, then the outbox.
    UPDATE outbox o SET redispatch_after = c.server_now + :row_lease * interval '1 ms'
    FROM chunk c
    WHERE o.id = :task AND o.dispatched_at IS NOT NULL AND (SELECT n FROM rows) > 0
      AND o.redispatch_after NOT BETWEEN c.server_now + :row_lease * interval '1 ms'
          AND c.server_now + :queued_lease * interval '1 ms'
)
-- open is the number of the chunk's open rows, for the first part only. It is not counted if the
-- claim has taken the whole chunk.
SELECT c.task, c.site_id, c.organisation_id, c.id AS batch_id, c.trace_id, c.currency, c.batch_reference,
       c.generation, c.phase, c.cancelled, c.paused, c.certain, c.epoch, c.now AS claimed_at,
       CASE WHEN :part_first > 0 THEN 0 WHEN r.n = c.last_row - c.first_row + 1 THEN r.n ELSE (
           SELECT count(*) FROM batch_rows w
           WHERE w.site_id = c.site_id AND w.batch_id = c.id AND w.row_index BETWEEN c.first_row AND c.last_row
             AND (w.state <> 'settled' OR w.in_doubt)) END AS open,
       r.row_index, r.customer_reference, r.row_reference, r.amount, r.in_doubt, r.settled, r.called_before,
       r.forgotten, r.deferrals, r.link_id, r.linked, r.party
FROM chunk c, rows r
