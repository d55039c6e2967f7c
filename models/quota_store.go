package models

import (
	"context"
	_ "embed" // statements
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

//go:embed quota_open_rows.sql
var openRowsSQL string

//go:embed quota_events.sql
var storedEventsSQL string

//go:embed quota_invitations.sql
var pendingInvitationsSQL string

const (
	// maxQuotaCounted is the most rows of a table that are counted for a usage.
	maxQuotaCounted = 100_000
	// retryOpenRows is what a partner is told to wait while its open rows are settled.
	retryOpenRows = 10 * time.Second
	// retryQuota is what a partner is told to wait where only its own acts or retention make room.
	retryQuota = time.Minute
)

// quotaGauges are the quotas of a store that have a gauge.
type quotaGauges struct {
	openRows, events, invitations *quotaGauge
}

func (s *Store) newQuotaGauges(q Quotas, now func() time.Time) quotaGauges {
	return quotaGauges{
		openRows:    newQuotaGauge(QuotaOpenRows, q.OpenRows, retryOpenRows, now, s.openRows),
		events:      newQuotaGauge(QuotaEvents, q.Events, retryQuota, now, s.storedEvents),
		invitations: newQuotaGauge(QuotaInvitations, q.Invitations, retryQuota, now, s.pendingInvitations),
	}
}

// openRows are an organisation's rows that are not settled, up to the quota. Rows that are settled
// count until their task ends. Very many tasks count as the whole quota, however few rows they
// have.
func (s *Store) openRows(ctx context.Context, organisation OrganisationID) (rows int64, err error) {
	quota := s.quotas.OpenRows
	most := max(min(quota, maxQuotaCounted), 2*quota/ChunkRows)
	var tasks int64
	err = s.statement(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, openRowsSQL, organisation, string(QueueDebits), most).Scan(&rows, &tasks)
	})
	if tasks >= most {
		rows = max(rows, quota)
	}
	return rows, wrap("open rows", err)
}

// storedEvents are an organisation's webhook events and open payment intents. Of more than
// maxQuotaCounted events the number is Postgres's estimate; more open payment intents count as so
// many.
func (s *Store) storedEvents(ctx context.Context, organisation OrganisationID) (n int64, err error) {
	var events, intents int64
	most := min(s.quotas.Events, maxQuotaCounted)
	err = s.statement(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, storedEventsSQL, organisation, most).Scan(&events, &intents)
	})
	if err == nil && events == maxQuotaCounted {
		var estimate int64
		if estimate, err = s.estimateEvents(ctx, organisation); estimate > events {
			events = estimate
		}
	}
	return events + intents, wrap("stored events", err)
}

// estimateEvents is how many events the planner expects an organisation to have, by the statistics
// of the table.
func (s *Store) estimateEvents(ctx context.Context, organisation OrganisationID) (int64, error) {
	var text []byte
	// The id is in the text, as the estimate for a parameter is that of an average organisation.
	query := fmt.Sprintf("EXPLAIN (FORMAT JSON) SELECT FROM webhook_events WHERE organisation_id = '%s'", uuid.UUID(organisation))
	err := s.native(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol).Scan(&text)
	})
	if err != nil {
		return 0, err
	}
	var explained []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	if err := json.Unmarshal(text, &explained); err != nil || len(explained) != 1 {
		return 0, fmt.Errorf("models: estimate of events: %d plans, %w", len(explained), err)
	}
	return int64(explained[0].Plan.Rows), nil
}

// pendingInvitations are an organisation's invitations that were not accepted, revoked or swept
// after their expiry.
func (s *Store) pendingInvitations(ctx context.Context, organisation OrganisationID) (n int64, err error) {
	err = s.statement(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, pendingInvitationsSQL, organisation).Scan(&n)
	})
	return n, wrap("pending invitations", err)
}

// checkEndpointQuota refuses another endpoint of an organisation that has as many as it may have.
// The transaction holds the organisation's lock on secrets, as every PUT does. An endpoint that is
// there may be put again.
func (s *Store) checkEndpointQuota(ctx context.Context, tx bun.Tx, organisation OrganisationID, site SiteID) error {
	limit := s.quotas.Endpoints
	if limit == 0 {
		return nil
	}
	var others int64
	var exists bool
	err := tx.Tx.QueryRowContext(ctx, `
SELECT count(*) FILTER (WHERE site_id <> $2), count(*) FILTER (WHERE site_id = $2) > 0
FROM webhook_endpoints WHERE organisation_id = $1`, organisation, site).Scan(&others, &exists)
	if err == nil && !exists && others >= limit {
		err = &QuotaError{Noun: QuotaEndpoints, Limit: limit, RetryAfter: retryQuota}
	}
	return err
}
