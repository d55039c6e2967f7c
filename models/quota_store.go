package models

import (
	"context"
	_ "embed" // statements
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"partnerbilling/models/postgres"
)

var (
	//go:embed quota_open_rows.sql
	openRowsText string
	openRowsSQL  = postgres.SQL(openRowsText)

	//go:embed quota_events.sql
	storedEventsText string
	storedEventsSQL  = postgres.SQL(storedEventsText)

	//go:embed quota_invitations.sql
	pendingInvitationsText string
	pendingInvitationsSQL  = postgres.SQL(pendingInvitationsText)

	endpointsSQL = postgres.SQL(`
SELECT count(*) FILTER (WHERE site_id <> :site), count(*) FILTER (WHERE site_id = :site) > 0
FROM webhook_endpoints WHERE organisation_id = :organisation`)
)

const (
	// maxQuotaCounted is the number of rows in a table at which a reading of usage stops counting.
	maxQuotaCounted = 100_000
	// retryOpenRows is the delay suggested to a partner while its open rows are settled.
	retryOpenRows = 10 * time.Second
	// retryQuota is the delay suggested to a partner where only its own acts or retention lower
	// usage.
	retryQuota = time.Minute
)

// quotaGauges are the gauges of a Store's approximate quotas: all but Endpoints.
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

// openRows returns the number of an organisation's unsettled rows. Settled rows count until their
// task ends. If there are too many tasks to count, the result is at least the quota.
func (s *Store) openRows(ctx context.Context, organisation OrganisationID) (rows int64, err error) {
	quota := s.quotas.OpenRows
	// Full chunks reach the quota with quota/ChunkRows tasks. Twice as many allow for chunks that
	// are not full.
	most := max(min(quota, maxQuotaCounted), 2*quota/ChunkRows)
	var tasks int64
	err = s.pg.Get(ctx, openRowsSQL, postgres.Args{
		"organisation": organisation, "queue": string(QueueDebits), "most": most,
	}, &rows, &tasks)
	if tasks >= most {
		rows = max(rows, quota)
	}
	return rows, wrap("open rows", err)
}

// storedEvents returns the number of an organisation's webhook events and open payment intents.
// Beyond maxQuotaCounted, events are Postgres's estimate, and open payment intents count as
// maxQuotaCounted.
func (s *Store) storedEvents(ctx context.Context, organisation OrganisationID) (n int64, err error) {
	var events, intents int64
	most := min(s.quotas.Events, maxQuotaCounted)
	err = s.pg.Get(ctx, storedEventsSQL, postgres.Args{"organisation": organisation, "most": most}, &events, &intents)
	if err == nil && events == maxQuotaCounted {
		var estimate int64
		if estimate, err = s.estimateEvents(ctx, organisation); estimate > events {
			events = estimate
		}
	}
	return events + intents, wrap("stored events", err)
}

// estimateEvents returns the planner's estimate of an organisation's events, from the table's
// statistics.
func (s *Store) estimateEvents(ctx context.Context, organisation OrganisationID) (int64, error) {
	var text []byte
	// The id is in the text: a parameter would get the estimate of an average organisation.
	query := fmt.Sprintf("EXPLAIN (FORMAT JSON) SELECT FROM webhook_events WHERE organisation_id = '%s'",
		uuid.UUID(organisation))
	err := s.pg.Native(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol).Scan(&text)
	})
	if err != nil {
		return 0, err
	}
	var explained [1]struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	err = json.Unmarshal(text, &explained)
	return int64(explained[0].Plan.Rows), wrap("estimate of events", err)
}

// pendingInvitations returns the number of an organisation's invitations that are neither accepted,
// revoked, nor recorded as expired.
func (s *Store) pendingInvitations(ctx context.Context, organisation OrganisationID) (n int64, err error) {
	err = s.pg.Get(ctx, pendingInvitationsSQL, postgres.Args{"organisation": organisation}, &n)
	return n, wrap("pending invitations", err)
}

// checkEndpointQuota returns a *QuotaError if a new endpoint would exceed the quota. Replacing an
// existing endpoint is always allowed. The caller's transaction holds the lock of
// lockWebhookSecrets, so that concurrent changes count each other.
func (s *Store) checkEndpointQuota(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, site SiteID,
) error {
	limit := s.quotas.Endpoints
	if limit == 0 {
		return nil
	}
	var others int64
	var exists bool
	err := tx.Get(ctx, endpointsSQL, postgres.Args{"organisation": organisation, "site": site}, &others, &exists)
	if err == nil && !exists && others >= limit {
		err = &QuotaError{Noun: QuotaEndpoints, Limit: limit, RetryAfter: retryQuota}
	}
	return err
}
