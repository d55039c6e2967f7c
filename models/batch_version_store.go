package models

import (
	"context"
	"database/sql"
	"errors"
)

// BatchVersion identifies a version of a batch and its rows without reading them all. Batches with
// equal versions are equal, except for a hash collision.
type BatchVersion struct {
	State BatchState
	Rows  string // opaque
}

// BatchVersion returns the version of GetBatch's current answer; ErrNotFound as in GetBatch.
func (s *Store) BatchVersion(ctx context.Context, site SiteID, reference string) (BatchVersion, error) {
	var v BatchVersion
	err := s.pg.Do(ctx, func() error {
		err := s.db.DB.QueryRowContext(ctx, `
SELECT CASE WHEN b.settle_by <= svc_now() THEN 'settled' ELSE b.state END, (
    SELECT coalesce(sum(hash_record_extended(ROW (r.row_index, r.state, r.outcome, r.corrected_outcome, r.settled_at,
                                                  `+shownAttempts("(SELECT svc_now()) < b.settle_by - $4")+`,
                                                  r.next_attempt_at), 0)), 0)::text
    FROM batch_rows r WHERE r.site_id = b.site_id AND r.batch_id = b.id)
FROM batches b WHERE b.site_id = $1 AND b.batch_reference = $2 AND b.submitted_at > svc_now() - $3`,
			site, reference, BatchRetention.Milliseconds(), LastAttemptBefore.Milliseconds()).Scan(&v.State, &v.Rows)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return v, wrap("batch version", err)
}
