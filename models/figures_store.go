package models

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// MostCounted is the number at which Figures stops counting.
const MostCounted = 1000

// Figures are an operator's key figures of the whole state.
type Figures struct {
	// OldestOpenBatch is the age of the open batch with the earliest deadline; 0 if none is open.
	OldestOpenBatch time.Duration
	// ParkedEndpoints is the number of webhook endpoints with parked events, at most MostCounted.
	ParkedEndpoints int
	// ParkedEvents is the number of parked events, at most MostCounted.
	ParkedEvents int
	// OpenAlerts are the numbers of open alerts by kind, at most MostCounted each. Every kind has
	// an entry.
	OpenAlerts map[string]int
}

// figuresSQL reads only the beginnings of indexes, so that backlogs and open alerts do not slow it
// down.
const figuresSQL = `
WITH RECURSIVE parked (n, organisation_id, endpoint_site_id) AS (
    (SELECT 1, w.organisation_id, w.endpoint_site_id FROM webhook_slots w WHERE w.until IS NULL ORDER BY 2, 3 LIMIT 1)
    UNION ALL
    SELECT p.n + 1, next.* FROM parked p CROSS JOIN LATERAL (
        SELECT w.organisation_id, w.endpoint_site_id FROM webhook_slots w
        WHERE w.until IS NULL AND (w.organisation_id, w.endpoint_site_id) > (p.organisation_id, p.endpoint_site_id)
        ORDER BY 1, 2 LIMIT 1) next
    WHERE p.n < $1
)
SELECT coalesce(greatest(0, now - (SELECT min(settle_by) FROM batches WHERE settled_at IS NULL) + $2), 0),
    (SELECT count(*) FROM parked),
    (SELECT count(*) FROM (SELECT FROM webhook_slots WHERE until IS NULL LIMIT $1) few),
    ARRAY(SELECT (SELECT count(*) FROM (SELECT FROM alerts a WHERE a.kind = k.kind AND a.closed_at IS NULL LIMIT $1) few)
        FROM unnest($3::text[]) WITH ORDINALITY AS k (kind, n) ORDER BY k.n)
FROM ` + svcNow + ` AS clock (now)`

// Figures reads the figures. Its cost does not grow with the numbers counted.
func (s *Store) Figures(ctx context.Context) (Figures, error) {
	f := Figures{OpenAlerts: make(map[string]int, len(AlertKinds))}
	var oldest int64
	var alerts []int32
	err := s.pg.Native(ctx, func(conn *pgx.Conn) error {
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
