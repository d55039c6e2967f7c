package models

import (
	"context"
	_ "embed" // statements
	"math"
	"time"

	"partnerbilling/models/postgres"
)

// Dispatch holds the bounds of one claim of tasks: of ClaimDue, or of ClaimTasks.
type Dispatch struct {
	Queue Queue
	// Limit is the maximum number of tasks that one claim takes.
	Limit int
	// InFlight is the maximum number of tasks that one organisation may have in flight. For
	// webhooks, ClaimDue multiplies it by webhooksInFlight.
	InFlight int
	// Total is the maximum number of tasks that all organisations together may have in flight; 0:
	// no bound.
	Total int
	// MinRoom is the free capacity, in tasks, below which ClaimDue claims nothing. Finding due work
	// dominates the cost of a claim, whatever its size.
	MinRoom int
}

// total returns Total, or the largest int32 if there is no bound.
func (d Dispatch) total() int {
	if d.Total == 0 {
		return math.MaxInt32
	}
	return d.Total
}

// claimDueSQL and claimTasksSQL commit without waiting for the disk. A crash of Postgres may undo a
// claim; its tasks then go out again under the same ids. Decisions about money wait for the disk.
var (
	//go:embed outbox_claim_due.sql
	outboxClaimDueText string
	claimDueSQL        = postgres.SQL(outboxClaimDueText)
	//go:embed outbox_claim_tasks.sql
	outboxClaimTasksText string
	claimTasksSQL        = postgres.SQL(outboxClaimTasksText)
	//go:embed backlogs.sql
	backlogsText string
	backlogsSQL  = postgres.SQL(backlogsText)

	hasDueSQL = postgres.SQL(`
SELECT EXISTS (
    SELECT FROM outbox
    WHERE queue = :queue AND redispatch_after IS NULL AND available_at <= (SELECT now FROM service_now))
  AND NOT EXISTS (SELECT FROM queue_pauses WHERE queue = :queue)`)
	inFlightSQL = postgres.SQL(`
SELECT count(*) FROM tasks_leased WHERE queue = :queue`)
	// num_nulls(dispatched_at) = 0 means that dispatched_at IS NOT NULL. It keeps the planner off
	// the partial indexes, where dead entries of other tasks make a look-up by id slow.
	confirmDispatchedSQL = postgres.SQL(`
UPDATE outbox o SET
    redispatch_after = greatest(o.redispatch_after, o.dispatched_at + :queued_lease * interval '1 ms')
WHERE o.id = ANY (ARRAY(
    SELECT w.id FROM unnest(:tasks::uuid[], :epochs::int[]) AS t (id, epoch) CROSS JOIN LATERAL (
        SELECT x.id FROM outbox x WHERE x.id = t.id AND x.epoch = t.epoch AND num_nulls(x.dispatched_at) = 0
        LIMIT 1 FOR UPDATE SKIP LOCKED) w))`)
	releaseTasksSQL = postgres.SQL(`
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (:tasks::uuid[]) AND o.epoch = (:epochs::int[])[array_position(:tasks::uuid[], o.id)]
  AND num_nulls(o.dispatched_at) = 0`)
	// An ARRAY subselect locks its rows once. A locking subquery in a join may run again for each
	// row, if a long transaction keeps dead rows that the planner counts. The LATERAL subquery runs
	// once for each queue.
	reclaimLostSQL = postgres.SQL(`
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(
    SELECT lost.id FROM unnest(:queues::text[]) AS q (queue) CROSS JOIN LATERAL (
        SELECT id FROM outbox x WHERE x.queue = q.queue AND x.redispatch_after <= statement_timestamp()
          AND x.redispatch_after > statement_timestamp() - :within * interval '1 ms'
        ORDER BY x.redispatch_after LIMIT :most FOR UPDATE SKIP LOCKED) lost LIMIT :most))`)
	// Locks tasks in the order of their ids, as dueTasksSQL does.
	reclaimQueueSQL = postgres.SQL(`
WITH tasks AS MATERIALIZED (
    SELECT x.id FROM outbox x WHERE x.queue = :queue AND x.dispatched_at IS NOT NULL ORDER BY x.id FOR UPDATE
)
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL WHERE o.id = ANY (ARRAY(SELECT id FROM tasks))`)
	// Unless the sandbox's clock was moved, nothing is due early, and the statement reads no index.
	reclaimEarlySQL = postgres.SQL(`
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(
    SELECT id FROM outbox WHERE dispatched_at IS NOT NULL AND kind = 'deliverWebhook'
      AND (SELECT offset_ms <> 0 OR frozen_ms IS NOT NULL FROM service_clock)
      AND available_at <= (SELECT now FROM service_now)
      AND redispatch_after - :lease * interval '1 ms' > statement_timestamp()
    ORDER BY available_at LIMIT :most FOR UPDATE SKIP LOCKED))`)
	extendTaskSQL = postgres.SQL(`
UPDATE outbox SET redispatch_after = statement_timestamp() + :row_lease * interval '1 ms'
WHERE id = :task AND dispatched_at IS NOT NULL`)
	finishTaskSQL = postgres.SQL(`DELETE FROM outbox WHERE id = :task`)
	repeatTaskSQL = postgres.SQL(`
UPDATE outbox SET dispatched_at = NULL, redispatch_after = NULL, available_at = svc_now() + :after WHERE id = :task`)
)

// ClaimDue claims due tasks for dispatch, fairly between organisations and then between their
// Sites. It claims nothing from a paused queue, nor while another ClaimDue of the queue runs. The
// claim holds for ClaimLease. The caller passes the tasks to ConfirmDispatched or ReleaseTasks.
func (s *Store) ClaimDue(ctx context.Context, d Dispatch) ([]Task, error) {
	due, err := s.hasDue(ctx, d.Queue)
	if err != nil || !due {
		return nil, err
	}
	if d.Queue == QueueWebhooks {
		d.InFlight *= webhooksInFlight
	}
	var tasks []Task
	err = s.pg.Select(ctx, claimDueSQL, postgres.Args{
		"queue": string(d.Queue), "most": d.Limit, "organisation_in_flight": d.InFlight, "queue_in_flight": d.total(),
		"min_room": d.MinRoom, "claim_lease": ClaimLease.Milliseconds(),
	}, &tasks)
	return tasks, wrap("claim due tasks", err)
}

// hasDue reports whether any task is due in a queue that is not paused. It lets a poll without due
// tasks skip the costly claim.
func (s *Store) hasDue(ctx context.Context, q Queue) (due bool, err error) {
	err = s.pg.Get(ctx, hasDueSQL, postgres.Args{"queue": string(q)}, &due)
	return due, wrap("look for due tasks", err)
}

// ClaimTasks claims the named tasks for dispatch, right after the commits that wrote them. Tasks
// beyond the bounds stay for ClaimDue. In the queue d.Queue, d.InFlight and d.Total apply. In every
// other queue, others.InFlight applies to each organisation, times webhooksInFlight for webhooks.
// others.Limit is the maximum number of webhooks that the call claims.
func (s *Store) ClaimTasks(ctx context.Context, ids []TaskID, d, others Dispatch) ([]Task, error) {
	var tasks []Task
	err := s.pg.Select(ctx, claimTasksSQL, postgres.Args{
		"tasks": ids, "queue": string(d.Queue), "organisation_in_flight": d.InFlight, "queue_in_flight": d.total(),
		"other_in_flight": others.InFlight, "webhooks": string(QueueWebhooks), "webhooks_in_flight": webhooksInFlight,
		"most_webhooks": others.Limit,
		"claim_lease":   ClaimLease.Milliseconds(),
	}, &tasks)
	return tasks, wrap("claim tasks", err)
}

// InFlight returns the number of a queue's dispatched tasks that wait in Redis or run. Webhook
// retries that are not due yet do not count. Neither do tasks whose lease ended over 15 seconds
// ago.
func (s *Store) InFlight(ctx context.Context, q Queue) (n int, err error) {
	err = s.pg.Get(ctx, inFlightSQL, postgres.Args{"queue": string(q)}, &n)
	return n, wrap("count tasks in flight", err)
}

// ConfirmDispatched extends the lease of tasks that Redis has accepted to QueuedLease, counted from
// their claim. It skips tasks that were released or claimed again since, and tasks that a worker
// has locked.
func (s *Store) ConfirmDispatched(ctx context.Context, tasks []Task) error {
	args := claimedArgs(tasks)
	args["queued_lease"] = QueuedLease.Milliseconds()
	_, err := s.pg.Run(ctx, confirmDispatchedSQL, args)
	return wrap("confirm dispatched tasks", err)
}

// ReleaseTasks makes claimed tasks due again at once, after Redis did not accept them.
func (s *Store) ReleaseTasks(ctx context.Context, tasks []Task) error {
	_, err := s.pg.Run(ctx, releaseTasksSQL, claimedArgs(tasks))
	return wrap("release tasks", err)
}

// claimedArgs returns the tasks' ids and epochs, which identify a claim.
func claimedArgs(tasks []Task) postgres.Args {
	ids, epochs := make([]TaskID, len(tasks)), make([]int, len(tasks))
	for i, t := range tasks {
		ids[i], epochs[i] = t.ID, t.Epoch
	}
	return postgres.Args{"tasks": ids, "epochs": epochs}
}

// AnyTime makes ReclaimLost look for every expired lease, however old: it is 100 years.
const AnyTime = 100 * 365 * 24 * time.Hour

// ReclaimLost makes at most limit tasks due again whose leases have expired within the given time:
// their worker died, or Redis lost them. It returns their number. While a long transaction hinders
// vacuum, the cost also grows with the finished tasks whose leases would have expired in that time.
func (s *Store) ReclaimLost(ctx context.Context, within time.Duration, limit int) (int, error) {
	n, err := s.pg.Run(ctx, reclaimLostSQL, postgres.Args{
		"queues": Queues, "within": within.Milliseconds(), "most": limit,
	})
	return n, wrap("reclaim lost tasks", err)
}

// ReclaimQueue makes every dispatched task of a queue due again, after Redis may have lost some of
// them, and returns their number. If a task is still running, its second run skips what the first
// has leased.
func (s *Store) ReclaimQueue(ctx context.Context, q Queue) (int, error) {
	n, err := s.pg.Run(ctx, reclaimQueueSQL, postgres.Args{"queue": string(q)})
	return n, wrap("reclaim the tasks of a queue", err)
}

// ReclaimEarly makes at most limit webhook retries due at once and returns their number. It takes
// those that still wait in Redis, by server time, although the sandbox's clock was advanced past
// the time when they are due. It leaves out retries that come out of Redis within a second.
func (s *Store) ReclaimEarly(ctx context.Context, limit int) (int, error) {
	n, err := s.pg.Run(ctx, reclaimEarlySQL, postgres.Args{
		"most": limit, "lease": (retryLease + time.Second).Milliseconds(),
	})
	return n, wrap("reclaim early retries", err)
}

// ExtendTask sets the end of the lease of a task in flight to RowLease from now. The worker calls
// it while rows are left to claim.
func (s *Store) ExtendTask(ctx context.Context, id TaskID) error {
	_, err := s.pg.Run(ctx, extendTaskSQL, postgres.Args{"task": id, "row_lease": RowLease.Milliseconds()})
	return wrap("extend task", err)
}

// FinishTask deletes a task with nothing left to do.
func (s *Store) FinishTask(ctx context.Context, id TaskID) error {
	_, err := s.pg.Run(ctx, finishTaskSQL, postgres.Args{"task": id})
	return wrap("finish task", err)
}

// RepeatTask makes a task due again after a delay in service time, for its next bounded step.
func (s *Store) RepeatTask(ctx context.Context, id TaskID, after time.Duration) error {
	_, err := s.pg.Run(ctx, repeatTaskSQL, postgres.Args{"task": id, "after": after.Milliseconds()})
	return wrap("repeat task", err)
}

// Backlog is the load of one queue.
type Backlog struct {
	Queue     Queue
	InFlight  int // dispatched tasks, except webhook retries that are not due yet
	Due       int // due tasks: those in flight, and at most MaxWaitingCounted waiting ones
	OldestDue Age // of the oldest due task that is not dispatched; 0 if none
}

// MaxWaitingCounted is the number of a queue's waiting tasks at which Backlogs stops counting.
const MaxWaitingCounted = 1000

// Backlogs reads the load of all queues, for scaling and alerts. Its cost does not grow with the
// backlog.
func (s *Store) Backlogs(ctx context.Context) (backlogs []Backlog, err error) {
	err = s.pg.Select(ctx, backlogsSQL, postgres.Args{"queues": Queues, "most": MaxWaitingCounted}, &backlogs)
	return backlogs, wrap("read backlogs", err)
}
