package models

import (
	"context"
	"time"
)

// StartRecurring writes the outbox row of a recurring task if it is due, and schedules its next run
// after every. One statement does both, so that exactly one process starts each run. It reports
// whether this call did.
func (s *Store) StartRecurring(ctx context.Context, kind TaskKind, every time.Duration) (bool, error) {
	n, err := s.execCount(ctx, "start recurring work", `
WITH tick AS (
    INSERT INTO recurring_work AS w (kind, next_run_at, task_id) VALUES ($1, (SELECT now FROM service_now) + $2, $3)
    ON CONFLICT (kind) DO UPDATE SET next_run_at = excluded.next_run_at,
        task_id = CASE WHEN EXISTS (SELECT FROM outbox WHERE id = w.task_id) THEN w.task_id ELSE excluded.task_id END
    WHERE w.next_run_at <= (SELECT now FROM service_now)
    RETURNING kind, task_id, next_run_at
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at)
SELECT task_id, kind, $4, $5, $5, $5, next_run_at - $2 FROM tick WHERE task_id = $3`,
		string(kind), every.Milliseconds(), NewID[taskNoun](), string(kind.Queue()), OrganisationID{})
	return n == 1, err
}
