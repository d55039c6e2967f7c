package models

import (
	"context"

	"partnerbilling/models/postgres"
)

// BatchVersion identifies a version of a batch and its rows, as partners see them. Unless hashes
// collide, equal versions mean equal answers of GetBatch. The hash leaves out what never changes,
// and what follows from the hashed columns.
type BatchVersion struct {
	State BatchState // settled from the deadline on, even before the batch is closed
	Rows  string     // the id of the batch and a hash of its rows; opaque
}

// batchVersionSQL computes a BatchVersion.
var batchVersionSQL = postgres.SQL(`
SELECT CASE WHEN b.settle_by <= svc_now() THEN 'settled' ELSE b.state END AS state, b.id::text || ' ' || (
    SELECT coalesce(sum(hash_record_extended(ROW (
               r.row_index, r.state, r.outcome, r.corrected_outcome, r.settled_at,
               ` + shownAttempts("(SELECT svc_now()) < b.settle_by - :last_attempt_before") + `,
               r.next_attempt_at), 0)), 0)::text
    FROM batch_rows r WHERE r.site_id = b.site_id AND r.batch_id = b.id) AS rows
FROM batches b
WHERE b.site_id = :site AND b.batch_reference = :reference AND b.submitted_at > svc_now() - :retention`)

// BatchVersion returns the version of the answer that GetBatch would give now. ErrNotFound as in
// GetBatch.
func (s *Store) BatchVersion(ctx context.Context, site SiteID, reference string) (BatchVersion, error) {
	v, err := readBatchVersion(ctx, s.pg, site, reference)
	return v, wrap("batch version", err)
}

// GetVersionedBatch does what GetBatch does, and also returns the version of the answer.
func (s *Store) GetVersionedBatch(
	ctx context.Context, site SiteID, reference string,
) (Batch, []BatchRow, BatchVersion, error) {
	var v BatchVersion
	batch, rows, err := s.getBatch(ctx, site, reference, &v)
	return batch, rows, v, err
}

// readBatchVersion reads the version of a batch over db: the pool or a database transaction.
func readBatchVersion(
	ctx context.Context, db postgres.Session, site SiteID, reference string,
) (v BatchVersion, err error) {
	err = db.Get(ctx, batchVersionSQL, postgres.Args{
		"site": site, "reference": reference, "retention": BatchRetention.Milliseconds(),
		"last_attempt_before": LastAttemptBefore.Milliseconds(),
	}, &v)
	return v, notFound(err, "batch")
}
