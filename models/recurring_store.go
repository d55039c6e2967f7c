package models

import (
	"context"
	"time"
)

// StartRecurring writes the outbox row of a recurring task if its time has come and moves its next run by every, in one
// statement: whichever process comes first leads that tick, the others find nothing to do. It reports whether it led.
func (s *Store) StartRecurring(ctx context.Context, kind TaskKind, every time.Duration) (bool, error) {
	n, err := s.execCount(ctx, "start recurring work", `
WITH tick AS (
    INSERT INTO recurring_work (kind, next_run_at) VALUES ($1, svc_now() + $2)
    ON CONFLICT (kind) DO UPDATE SET next_run_at = excluded.next_run_at
    WHERE recurring_work.next_run_at <= svc_now()
    RETURNING kind
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at)
SELECT $3, kind, $4, $5, $5, $5, svc_now() FROM tick
WHERE NOT EXISTS (SELECT FROM outbox WHERE queue = $4 AND kind = $1)`,
		string(kind), every.Milliseconds(), NewID[taskNoun](), string(kind.Queue()), OrganisationID{})
	return n == 1, err
}
