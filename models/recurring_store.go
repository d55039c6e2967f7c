package models

import (
	"context"
	"time"

	"partnerbilling/models/postgres"
)

var startRecurringSQL = postgres.SQL(`
WITH tick AS (
    INSERT INTO recurring_work AS w (kind, next_run_at, task_id)
    VALUES (:kind, (SELECT now FROM service_now) + :every, :task)
    ON CONFLICT (kind) DO UPDATE SET next_run_at = excluded.next_run_at,
        task_id = CASE WHEN EXISTS (SELECT FROM outbox WHERE id = w.task_id) THEN w.task_id ELSE excluded.task_id END
    WHERE w.next_run_at <= (SELECT now FROM service_now)
    RETURNING kind, task_id, next_run_at
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at)
SELECT task_id, kind, :queue, :none, :none, :none, next_run_at - :every FROM tick WHERE task_id = :task`)

// StartRecurring writes the task of a kind of recurring work if the work is due, and schedules the
// next run one interval (every) later. It skips a run while the task of an earlier run exists. One
// statement does all this, so that exactly one process starts each run. StartRecurring reports
// whether this call has written the task.
func (s *Store) StartRecurring(ctx context.Context, kind TaskKind, every time.Duration) (bool, error) {
	n, err := s.pg.Run(ctx, startRecurringSQL, postgres.Args{
		"kind": string(kind), "queue": string(kind.Queue()), "every": every.Milliseconds(), "task": NewID[taskNoun](),
		"none": OrganisationID{},
	})
	return n == 1, wrap("start recurring work", err)
}
