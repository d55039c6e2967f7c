package models

import (
	"context"
	"database/sql"
	_ "embed" // statements
	"fmt"
	"math"
	"time"
)

// Dispatch bounds one claim of due tasks.
type Dispatch struct {
	Queue Queue
	// Limit is the maximum number of tasks that one claim takes.
	Limit int
	// InFlight is the maximum number of tasks that one organisation may have in flight.
	InFlight int
	// Total is the maximum number of tasks that all organisations together may have in flight; 0:
	// no bound.
	Total int
	// MinRoom is the free capacity below which claiming is skipped: finding due work dominates its
	// cost.
	MinRoom int
}

// total is Total, with the largest int32 for no bound.
func (d Dispatch) total() int {
	if d.Total == 0 {
		return math.MaxInt32
	}
	return d.Total
}

// notFlushed lets a claiming transaction return before its commit is on disk. A crash of Postgres
// then undoes the claim, and its tasks go out once more under the same names. It is only for claims
// that may be repeated, never for decisions about money.
const notFlushed = `set_config('synchronous_commit', 'off', true)`

// The statements that claim tasks; see the files.
var (
	//go:embed outbox_claim_due.sql
	claimDueSQL string
	//go:embed outbox_claim_tasks.sql
	claimTasksSQL string
)

// ClaimDue claims due tasks for dispatch, fairly between organisations and then between their
// Sites. The claim holds for ClaimLease. The caller confirms or releases the tasks.
func (s *Store) ClaimDue(ctx context.Context, d Dispatch) ([]Task, error) {
	due, err := s.hasDue(ctx, d.Queue)
	if err != nil || !due {
		return nil, err
	}
	if d.Queue == QueueWebhooks {
		d.InFlight *= webhooksInFlight
	}
	return s.queryTasks(ctx, "claim due tasks", claimDueSQL, string(d.Queue), d.Limit, d.InFlight,
		ClaimLease.Milliseconds(),
		d.total(), d.MinRoom)
}

// hasDue reports whether any task is due. It spares most polls the claim statement.
func (s *Store) hasDue(ctx context.Context, q Queue) (due bool, err error) {
	err = s.pg.Do(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, `
SELECT EXISTS (SELECT FROM outbox WHERE queue = $1 AND redispatch_after IS NULL AND available_at <= (SELECT now FROM service_now))`,
			string(q)).Scan(&due)
	})
	return due, wrap("look for due tasks", err)
}

// ClaimTasks claims the named tasks for dispatch, right after the commits that wrote them. Tasks
// beyond the bounds stay for ClaimDue. d bounds its own queue. For every other queue,
// others.InFlight bounds each organisation; others.Limit bounds the webhooks of the call.
func (s *Store) ClaimTasks(ctx context.Context, ids []TaskID, d, others Dispatch) ([]Task, error) {
	return s.queryTasks(ctx, "claim tasks", claimTasksSQL, ids, d.InFlight, ClaimLease.Milliseconds(), webhooksInFlight,
		d.total(),
		string(d.Queue), others.InFlight, others.Limit)
}

// InFlight returns the number of a queue's tasks in Redis or in work, without retries that wait in
// Redis.
func (s *Store) InFlight(ctx context.Context, q Queue) (n int, err error) {
	err = s.pg.Do(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, `
SELECT count(*) FROM outbox WHERE queue = $1 AND dispatched_at IS NOT NULL AND available_at <= (SELECT now FROM service_now)`,
			string(q)).Scan(&n)
	})
	return n, wrap("count tasks in flight", err)
}

func (s *Store) queryTasks(ctx context.Context, what, query string, args ...any) ([]Task, error) {
	var tasks []Task
	err := s.pg.Do(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		tasks, err = scanAll(rows, func(t *Task) []any {
			return []any{&t.ID, &t.Kind, &t.OrganisationID, &t.SiteID, &t.TraceID, &t.Epoch, &t.Rows}
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("models: %s: %w", what, err)
	}
	return tasks, nil
}

// scanAll scans every row into a T, through the pointers that fields returns, and closes rows.
func scanAll[T any](rows *sql.Rows, fields func(*T) []any) ([]T, error) {
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		var one T
		if err := rows.Scan(fields(&one)...); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// ConfirmDispatched extends the lease of tasks that Redis has accepted to QueuedLease, counted from
// their claim. It skips tasks that have moved on since, and tasks locked by a worker.
func (s *Store) ConfirmDispatched(ctx context.Context, tasks []Task) error {
	return s.moveClaimed(ctx, "confirm dispatched tasks", tasks, `
UPDATE outbox o SET redispatch_after = greatest(o.redispatch_after, o.dispatched_at + $3 * interval '1 ms')
WHERE o.id = ANY (ARRAY(
    SELECT w.id FROM unnest($1::uuid[], $2::int[]) AS t (id, epoch) CROSS JOIN LATERAL (
        SELECT x.id FROM outbox x WHERE x.id = t.id AND x.epoch = t.epoch AND num_nulls(x.dispatched_at) = 0
        LIMIT 1 FOR UPDATE SKIP LOCKED) w))`, QueuedLease.Milliseconds())
}

// ReleaseTasks makes claimed tasks due again at once, after Redis did not accept them.
func (s *Store) ReleaseTasks(ctx context.Context, tasks []Task) error {
	return s.moveClaimed(ctx, "release tasks", tasks, `
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY ($1::uuid[]) AND o.epoch = ($2::int[])[array_position($1::uuid[], o.id)] AND num_nulls(o.dispatched_at) = 0`)
}

func (s *Store) moveClaimed(ctx context.Context, what string, tasks []Task, query string, more ...any) error {
	ids, epochs := make([]TaskID, len(tasks)), make([]int, len(tasks))
	for i, t := range tasks {
		ids[i], epochs[i] = t.ID, t.Epoch
	}
	return s.exec(ctx, what, query, append([]any{ids, epochs}, more...)...)
}

// exec runs one statement whose row count the caller does not need.
func (s *Store) exec(ctx context.Context, what, query string, args ...any) error {
	_, err := s.execCount(ctx, what, query, args...)
	return err
}

func (s *Store) execCount(ctx context.Context, what, query string, args ...any) (int, error) {
	var n int64
	err := s.pg.Do(ctx, func() error {
		res, err := s.db.DB.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("models: %s: %w", what, err)
	}
	return int(n), nil
}

// reclaimLostSQL locks in an ARRAY subselect, which runs once. A join would run again for each row
// under a long transaction.
const reclaimLostSQL = `
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(
    SELECT id FROM outbox WHERE redispatch_after <= statement_timestamp()
    ORDER BY redispatch_after LIMIT $1 FOR UPDATE SKIP LOCKED))`

// ReclaimLost makes at most limit tasks with an expired lease due again: their worker died, or
// Redis lost them. It returns their number.
func (s *Store) ReclaimLost(ctx context.Context, limit int) (int, error) {
	return s.execCount(ctx, "reclaim lost tasks", reclaimLostSQL, limit)
}

// ReclaimAll makes every task in flight due again, after Redis has lost its data. A second run of a
// task in work finds the rows leased and skips them. It returns the number of tasks.
func (s *Store) ReclaimAll(ctx context.Context) (int, error) {
	return s.execCount(ctx, "reclaim all tasks", `
UPDATE outbox SET dispatched_at = NULL, redispatch_after = NULL WHERE dispatched_at IS NOT NULL`)
}

// ReclaimEarly makes at most limit retries due again that are due by service time but not by real
// time, which Redis uses: the sandbox's clock was advanced. It returns their number.
func (s *Store) ReclaimEarly(ctx context.Context, limit int) (int, error) {
	return s.execCount(ctx, "reclaim early retries", `
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(
    SELECT id FROM outbox WHERE dispatched_at IS NOT NULL AND kind = 'deliverWebhook'
      AND available_at <= (SELECT now FROM service_now)
        AND redispatch_after - $2 * interval '1 ms' > statement_timestamp()
    ORDER BY available_at LIMIT $1 FOR UPDATE SKIP LOCKED))`, limit, (retryLease + time.Second).Milliseconds())
}

// HoldTask extends a task's lease by RowLease, for a worker that has yet to claim more of it.
func (s *Store) HoldTask(ctx context.Context, id TaskID) error {
	return s.exec(ctx, "hold task", `
UPDATE outbox SET redispatch_after = statement_timestamp() + $2 * interval '1 ms'
WHERE id = $1 AND dispatched_at IS NOT NULL`, id, RowLease.Milliseconds())
}

// FinishTask deletes a task with nothing left to do.
func (s *Store) FinishTask(ctx context.Context, id TaskID) error {
	return s.exec(ctx, "finish task", `DELETE FROM outbox WHERE id = $1`, id)
}

// RepeatTask makes a task due again after a delay of service time, for work in bounded steps.
func (s *Store) RepeatTask(ctx context.Context, id TaskID, after time.Duration) error {
	return s.exec(ctx, "repeat task", `
UPDATE outbox SET dispatched_at = NULL, redispatch_after = NULL, available_at = svc_now() + $2
WHERE id = $1`, id, after.Milliseconds())
}

// Backlog is the load of one queue.
type Backlog struct {
	Queue     Queue
	InFlight  int           // tasks in Redis or in work
	OldestDue time.Duration // age of the oldest due task that is not dispatched; 0 if none
}

// Backlogs reads the load of all queues, for scaling and alerts. Its cost does not grow with the
// backlog.
func (s *Store) Backlogs(ctx context.Context) ([]Backlog, error) {
	var all []Backlog
	err := s.pg.Do(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, `
SELECT q, (SELECT count(*) FROM outbox WHERE dispatched_at IS NOT NULL AND queue = q AND available_at <= svc_now()),
       greatest(0, svc_now() - coalesce((SELECT min(available_at) FROM outbox WHERE redispatch_after IS NULL AND queue = q), svc_now()))
FROM unnest($1::text[]) AS q`, []string{string(QueueCheckout), string(QueueDebits), string(QueueWebhooks),
			string(QueueSweeps)})
		if err != nil {
			return err
		}
		all, err = scanAll(rows, func(b *Backlog) []any { return []any{&b.Queue, &b.InFlight, (*millisDuration)(&b.OldestDue)} })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("models: backlogs: %w", err)
	}
	return all, nil
}

// millisDuration scans a count of milliseconds into a time.Duration.
type millisDuration time.Duration

// Scan reads an integer column.
func (d *millisDuration) Scan(src any) error {
	ms, ok := src.(int64)
	if !ok {
		return fmt.Errorf("models: %T is not a count of milliseconds", src)
	}
	*d = millisDuration(time.Duration(ms) * time.Millisecond)
	return nil
}
