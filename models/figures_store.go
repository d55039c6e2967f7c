package models

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// MostCounted is where Figures stops counting: an operator needs to know no more than that they are many.
const MostCounted = 1000

// Figures are what an operator has to know of the state as a whole.
type Figures struct {
	// OldestOpenBatch is how long ago the batch was submitted that is to settle next, SettleWithin later; 0 if none is open.
	OldestOpenBatch time.Duration
	// ParkedEndpoints are the webhook endpoints for which events wait until they take them again, at most MostCounted.
	ParkedEndpoints int
	// ParkedEvents are those events, at most MostCounted.
	ParkedEvents int
	// OpenAlerts are the alerts that nobody has closed, by kind, at most MostCounted of each. Every kind is there.
	OpenAlerts map[string]int
}

// figuresSQL reads beginnings of indexes: neither a backlog nor alerts that nobody closes make it slower.
const figuresSQL = `
WITH RECURSIVE parked (n, organisation_id, endpoint_site_id) AS (
    (SELECT 1, w.organisation_id, w.endpoint_site_id FROM webhook_places w WHERE w.until IS NULL ORDER BY 2, 3 LIMIT 1)
    UNION ALL
    SELECT p.n + 1, next.* FROM parked p CROSS JOIN LATERAL (
        SELECT w.organisation_id, w.endpoint_site_id FROM webhook_places w
        WHERE w.until IS NULL AND (w.organisation_id, w.endpoint_site_id) > (p.organisation_id, p.endpoint_site_id)
        ORDER BY 1, 2 LIMIT 1) next
    WHERE p.n < $1
)
SELECT coalesce(greatest(0, now - (SELECT min(settle_by) FROM batches WHERE settled_at IS NULL) + $2), 0),
    (SELECT count(*) FROM parked),
    (SELECT count(*) FROM (SELECT FROM webhook_places WHERE until IS NULL LIMIT $1) few),
    ARRAY(SELECT (SELECT count(*) FROM (SELECT FROM alerts a WHERE a.kind = k.kind AND a.closed_at IS NULL LIMIT $1) few)
        FROM unnest($3::text[]) WITH ORDINALITY AS k (kind, n) ORDER BY k.n)
FROM ` + svcNow + ` AS clock (now)`

// Figures reads the figures. Its cost does not grow with what they count.
func (s *Store) Figures(ctx context.Context) (Figures, error) {
	f := Figures{OpenAlerts: make(map[string]int, len(AlertKinds))}
	var oldest int64
	var alerts []int32
	err := s.native(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, figuresSQL, MostCounted, SettleWithin.Milliseconds(), AlertKinds).
			Scan(&oldest, &f.ParkedEndpoints, &f.ParkedEvents, &alerts)
	})
	if err != nil {
		return Figures{}, wrap("figures", err)
	}
	f.OldestOpenBatch = time.Duration(oldest) * time.Millisecond
	for i, kind := range AlertKinds {
		f.OpenAlerts[kind] = int(alerts[i])
	}
	return f, nil
}
