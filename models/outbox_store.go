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
	// Limit is the most tasks that one claim takes.
	Limit int
	// InFlight is the most tasks that one organisation may have in Redis or in work at a time.
	InFlight int
	// Total is the most that all organisations together may have; 0: no bound.
	Total int
	// Worth is the least room under Total that a claim is worth, whose cost is mostly that of looking who has something due.
	MinRoom int
}

// total is Total as a bound.
func (d Dispatch) total() int {
	if d.Total == 0 {
		return math.MaxInt32
	}
	return d.Total
}

// notFlushed lets a transaction that claims return before its commit is on the disk. If Postgres crashes right then, it is as if the claim
// had never been: what was claimed for dispatch goes out once more, under the same name. For claims only that a second
// claimer may well make again: never for what decides about money.
const notFlushed = `set_config('synchronous_commit', 'off', true)`

// The statements that claim tasks; see the files.
var (
	//go:embed outbox_claim_due.sql
	claimDueSQL string
	//go:embed outbox_claim_tasks.sql
	claimTasksSQL string
)

// ClaimDue takes due tasks for dispatch, fairly between organisations and then their Sites. A claim protects its tasks
// for ClaimLease; the caller then either confirms them or releases them.
func (s *Store) ClaimDue(ctx context.Context, d Dispatch) ([]Task, error) {
	due, err := s.hasDue(ctx, d.Queue)
	if err != nil || !due {
		return nil, err
	}
	if d.Queue == QueueWebhooks {
		d.InFlight *= webhooksInFlight
	}
	return s.queryTasks(ctx, "claim due tasks", claimDueSQL, string(d.Queue), d.Limit, d.InFlight, ClaimLease.Milliseconds(),
		d.total(), d.MinRoom)
}

// hasDue says whether there is anything to claim. Most looks find nothing; they cost no more than this.
func (s *Store) hasDue(ctx context.Context, q Queue) (due bool, err error) {
	err = s.statement(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, `
SELECT EXISTS (SELECT FROM outbox WHERE queue = $1 AND redispatch_after IS NULL AND available_at <= (SELECT now FROM service_now))`,
			string(q)).Scan(&due)
	})
	return due, wrap("look for due tasks", err)
}

// ClaimTasks takes the named tasks for dispatch right after the commits that wrote them. What exceeds the bounds stays for ClaimDue: d are
// those of its queue; of others, InFlight is for every other one, and Limit is how many webhooks it may be.
func (s *Store) ClaimTasks(ctx context.Context, ids []TaskID, d, others Dispatch) ([]Task, error) {
	return s.queryTasks(ctx, "claim tasks", claimTasksSQL, ids, d.InFlight, ClaimLease.Milliseconds(), webhooksInFlight, d.total(),
		string(d.Queue), others.InFlight, others.Limit)
}

// InFlight is how many tasks of a queue are in Redis or in work; retries that wait in Redis for their time are not.
func (s *Store) InFlight(ctx context.Context, q Queue) (n int, err error) {
	err = s.statement(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, `
SELECT count(*) FROM outbox WHERE queue = $1 AND dispatched_at IS NOT NULL AND available_at <= (SELECT now FROM service_now)`,
			string(q)).Scan(&n)
	})
	return n, wrap("count tasks in flight", err)
}

func (s *Store) queryTasks(ctx context.Context, what, query string, args ...any) ([]Task, error) {
	var tasks []Task
	err := s.statement(ctx, func() error {
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

// scanAll reads every row into a T, whose fields' addresses fields gives, and closes rows.
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

// ConfirmDispatched gives tasks that Redis has taken the lease of a queued task, from when they were claimed. Tasks that have moved
// on since are left, and so are those that a worker is ending or leasing at the moment: it waits for nobody.
func (s *Store) ConfirmDispatched(ctx context.Context, tasks []Task) error {
	return s.moveClaimed(ctx, "confirm dispatched tasks", tasks, `
UPDATE outbox o SET redispatch_after = greatest(o.redispatch_after, o.dispatched_at + $3 * interval '1 ms')
WHERE o.id = ANY (ARRAY(
    SELECT w.id FROM unnest($1::uuid[], $2::int[]) AS t (id, epoch) CROSS JOIN LATERAL (
        SELECT x.id FROM outbox x WHERE x.id = t.id AND x.epoch = t.epoch AND num_nulls(x.dispatched_at) = 0
        LIMIT 1 FOR UPDATE SKIP LOCKED) w))`, QueuedLease.Milliseconds())
}

// ReleaseTasks makes claimed tasks that Redis did not take due again at once.
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

// exec sends one statement whose row count does not matter to the caller.
func (s *Store) exec(ctx context.Context, what, query string, args ...any) error {
	_, err := s.execCount(ctx, what, query, args...)
	return err
}

func (s *Store) execCount(ctx context.Context, what, query string, args ...any) (int, error) {
	var n int64
	err := s.statement(ctx, func() error {
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

// reclaimLostSQL locks in an ARRAY subselect, which runs once: as a join it is run again for each row under a long
// transaction.
const reclaimLostSQL = `
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(
    SELECT id FROM outbox WHERE redispatch_after <= statement_timestamp()
    ORDER BY redispatch_after LIMIT $1 FOR UPDATE SKIP LOCKED))`

// ReclaimLost makes at most limit tasks due again whose lease has run out: their worker died, or Redis lost them. It
// reports how many.
func (s *Store) ReclaimLost(ctx context.Context, limit int) (int, error) {
	return s.execCount(ctx, "reclaim lost tasks", reclaimLostSQL, limit)
}

// ReclaimAll makes every task in flight due again, for when Redis has lost its memory. Tasks that a worker holds at
// the moment come again too; their second run finds the rows leased and leaves them. It reports how many.
func (s *Store) ReclaimAll(ctx context.Context) (int, error) {
	return s.execCount(ctx, "reclaim all tasks", `
UPDATE outbox SET dispatched_at = NULL, redispatch_after = NULL WHERE dispatched_at IS NOT NULL`)
}

// ReclaimEarly makes at most limit retries due again whose time has come by the service's clock, but by the real one, which
// Redis goes by, is still to come: the clock was moved. It reports how many.
func (s *Store) ReclaimEarly(ctx context.Context, limit int) (int, error) {
	return s.execCount(ctx, "reclaim early retries", `
UPDATE outbox o SET dispatched_at = NULL, redispatch_after = NULL
WHERE o.id = ANY (ARRAY(
    SELECT id FROM outbox WHERE dispatched_at IS NOT NULL AND kind = 'deliverWebhook' AND available_at <= (SELECT now FROM service_now)
        AND redispatch_after - $2 * interval '1 ms' > statement_timestamp()
    ORDER BY available_at LIMIT $1 FOR UPDATE SKIP LOCKED))`, limit, (retryLease + time.Second).Milliseconds())
}

// HoldTask extends the lease of a task that a worker has yet to claim more of, by RowLease.
func (s *Store) HoldTask(ctx context.Context, id TaskID) error {
	return s.exec(ctx, "hold task", `
UPDATE outbox SET redispatch_after = statement_timestamp() + $2 * interval '1 ms'
WHERE id = $1 AND dispatched_at IS NOT NULL`, id, RowLease.Milliseconds())
}

// FinishTask deletes a task with nothing left to do.
func (s *Store) FinishTask(ctx context.Context, id TaskID) error {
	return s.exec(ctx, "finish task", `DELETE FROM outbox WHERE id = $1`, id)
}

// RepeatTask makes a task due again after the delay of service time, for work that goes in bounded steps.
func (s *Store) RepeatTask(ctx context.Context, id TaskID, after time.Duration) error {
	return s.exec(ctx, "repeat task", `
UPDATE outbox SET dispatched_at = NULL, redispatch_after = NULL, available_at = svc_now() + $2
WHERE id = $1`, id, after.Milliseconds())
}

// Backlog is how much work waits on one queue.
type Backlog struct {
	Queue     Queue
	InFlight  int           // tasks in Redis or in work
	OldestDue time.Duration // age of the oldest due task that has not gone out; 0 if none
}

// Backlogs reads the queues' figures, for scaling and alerts. Its cost does not grow with what waits.
func (s *Store) Backlogs(ctx context.Context) ([]Backlog, error) {
	var all []Backlog
	err := s.statement(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, `
SELECT q, (SELECT count(*) FROM outbox WHERE dispatched_at IS NOT NULL AND queue = q AND available_at <= svc_now()),
       greatest(0, svc_now() - coalesce((SELECT min(available_at) FROM outbox WHERE redispatch_after IS NULL AND queue = q), svc_now()))
FROM unnest($1::text[]) AS q`, []string{string(QueueCheckout), string(QueueDebits), string(QueueWebhooks), string(QueueSweeps)})
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
