package models

import (
	"context"
	"database/sql"
	"errors"
	"net/url"

	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// WebhookEndpoint is the destination of events of an organisation or of one of its Sites.
type WebhookEndpoint struct {
	OrganisationID OrganisationID
	SiteID         SiteID // zero: the organisation's default
	URL            string
	Events         []WebhookEventType // subscribed types, EventTransactionStatus among them
	CreatedAt      Millis
	UpdatedAt      Millis
	DisabledAt     Millis // when a day of only 410 answers ended; 0: enabled. A PUT enables it again
	Breaker        WebhookBreaker
}

// WebhookEndpointState is the health of an endpoint.
type WebhookEndpointState string

// The states of an endpoint.
const (
	WebhookEndpointActive WebhookEndpointState = "active"
	// WebhookEndpointPaused: consecutive failures have opened the breaker. Events are parked; once
	// the breaker is half-open, one probe at a time is sent.
	WebhookEndpointPaused   WebhookEndpointState = "paused"
	WebhookEndpointDisabled WebhookEndpointState = "disabled" // after a day of only 410 answers
)

// State returns the endpoint's health.
func (e *WebhookEndpoint) State() WebhookEndpointState {
	switch {
	case e.DisabledAt != 0:
		return WebhookEndpointDisabled
	case e.Breaker.OpenUntil != 0:
		return WebhookEndpointPaused
	default:
		return WebhookEndpointActive
	}
}

// webhookEndpointRow is a row of the table webhook_endpoints.
type webhookEndpointRow struct {
	bun.BaseModel `bun:"table:webhook_endpoints"`
	WebhookBreaker

	OrganisationID OrganisationID     `bun:"organisation_id,pk"`
	SiteID         SiteID             `bun:"site_id,pk"`
	URL            string             `bun:"url"`
	Events         []WebhookEventType `bun:"events,array"`
	CreatedAt      Millis             `bun:"created_at"`
	UpdatedAt      Millis             `bun:"updated_at"`
	DisabledAt     Millis             `bun:"disabled_at"`
}

func (r *webhookEndpointRow) endpoint() WebhookEndpoint {
	return WebhookEndpoint{
		r.OrganisationID, r.SiteID, r.URL, r.Events, r.CreatedAt, r.UpdatedAt, r.DisabledAt, r.WebhookBreaker,
	}
}

// readEndpoints reads the endpoints with the given keys, in the order in which all statements lock
// endpoints.
const readEndpoints = `
SELECT w.*, (SELECT now FROM service_now) AS now
FROM unnest(:organisations::uuid[], :sites::uuid[]) AS k (organisation_id, site_id)
JOIN webhook_endpoints w ON w.organisation_id = k.organisation_id AND w.site_id = k.site_id
ORDER BY w.organisation_id, w.site_id`

var (
	readEndpointsSQL     = postgres.SQL(readEndpoints)
	lockEndpointsSQL     = postgres.SQL(readEndpoints + ` FOR UPDATE OF w`)
	lockFreeEndpointsSQL = postgres.SQL(readEndpoints + ` FOR UPDATE OF w SKIP LOCKED`)
)

// readWebhookEndpoints reads endpoints with a statement made of readEndpoints. It also returns the
// service time; 0 without endpoints.
func readWebhookEndpoints(
	ctx context.Context, tx postgres.Tx, read postgres.Statement, keys []endpointKey,
) (found map[endpointKey]*webhookEndpointRow, now Millis, err error) {
	organisations, sites := keyArrays(keys)
	var rows []struct {
		webhookEndpointRow
		Now Millis
	}
	err = tx.Select(ctx, read, postgres.Args{"organisations": organisations, "sites": sites}, &rows)
	found = make(map[endpointKey]*webhookEndpointRow, len(rows))
	for i := range rows {
		found[endpointKey{rows[i].OrganisationID, rows[i].SiteID}] = &rows[i].webhookEndpointRow
		now = rows[i].Now
	}
	return found, now, err
}

// WebhookEndpoint returns the endpoint of the Site, or for the zero Site the organisation's
// default. ErrNoWebhookEndpoint: that very endpoint is not configured. The default does not stand
// in for a Site's.
func (s *Store) WebhookEndpoint(
	ctx context.Context, organisation OrganisationID, site SiteID,
) (WebhookEndpoint, error) {
	row := &webhookEndpointRow{OrganisationID: organisation, SiteID: site}
	err := s.pg.Read(ctx, func(on bun.IDB) error { return on.NewSelect().Model(row).WherePK().Scan(ctx) })
	if errors.Is(err, sql.ErrNoRows) {
		return WebhookEndpoint{}, ErrNoWebhookEndpoint
	}
	return row.endpoint(), wrap("webhook endpoint", err)
}

// WebhookEndpoints returns the organisation's endpoints: the default first, then those of Sites in
// the order of their ids.
func (s *Store) WebhookEndpoints(ctx context.Context, organisation OrganisationID) ([]WebhookEndpoint, error) {
	var rows []webhookEndpointRow
	err := s.pg.Read(ctx, func(on bun.IDB) error {
		rows = nil
		return on.NewSelect().Model(&rows).Where("organisation_id = ?", organisation).Order("site_id").Scan(ctx)
	})
	endpoints := make([]WebhookEndpoint, len(rows))
	for i := range rows {
		endpoints[i] = rows[i].endpoint()
	}
	return endpoints, wrap("webhook endpoints", err)
}

// PutWebhookEndpoint configures and enables an endpoint, and resets its breaker: parked events go
// out. The zero Site means the default. target is the URL, which the caller has checked with
// WebhookTargets. events are the subscribed types, EventTransactionStatus among them; none means
// EventTransactionStatus alone. If the organisation has no secret yet, the call creates one;
// otherwise secret is nil. *QuotaError refuses a new endpoint.
func (s *Store) PutWebhookEndpoint(
	ctx context.Context, ring *seal.Keyring, organisation OrganisationID, site SiteID, target string,
	events ...WebhookEventType,
) (endpoint WebhookEndpoint, secret *WebhookSecret, err error) {
	if len(events) == 0 {
		events = []WebhookEventType{EventTransactionStatus}
	}
	actFrom(ctx).aboutEndpoint(organisation, site).with("host", hostOf(target)).with("events", events)
	var taken int
	err = s.act(ctx, func(tx postgres.Tx) error {
		secret = nil
		if err := lockWebhookSecrets(ctx, tx, organisation); err != nil {
			return err
		}
		if err := s.checkEndpointQuota(ctx, tx, organisation, site); err != nil {
			return err
		}
		if secret, err = ensureWebhookSecret(ctx, tx, ring, organisation); err != nil {
			return err
		}
		endpoint, taken, err = putWebhookEndpoint(ctx, tx, organisation, site, target, events)
		return err
	})
	if err == nil && taken == reviveStep {
		s.takeOver(ctx, organisation, site)
	}
	return endpoint, secret, wrap("put webhook endpoint", err)
}

// ensureWebhookSecret creates the organisation's first secret; nil if it has one.
func ensureWebhookSecret(
	ctx context.Context, tx postgres.Tx, ring *seal.Keyring, organisation OrganisationID,
) (*WebhookSecret, error) {
	live, _, err := liveWebhookSecrets(ctx, tx, organisation)
	if err != nil || len(live[organisation]) > 0 {
		return nil, err
	}
	var now Millis
	if err := tx.NewSelect().ColumnExpr("svc_now()").Scan(ctx, &now); err != nil {
		return nil, err
	}
	secret, err := insertWebhookSecret(ctx, tx, ring, organisation, now, now)
	return &secret, err
}

var putWebhookEndpointSQL = postgres.SQL(`
INSERT INTO webhook_endpoints AS e (organisation_id, site_id, url, events, created_at, updated_at, width)
VALUES (:organisation, :site, :url, :events::text[]::webhook_event_type[], svc_now(), svc_now(), :width)
ON CONFLICT (organisation_id, site_id) DO UPDATE SET url = excluded.url, events = excluded.events,
    updated_at = excluded.updated_at, disabled_at = NULL, failures = 0, open_until = NULL, openings = 0,
    width = excluded.width, gone_since = NULL
RETURNING *`)

// putWebhookEndpoint writes an endpoint and makes its parked events due. It returns the endpoint,
// and how many parked events of the default endpoint now go to it.
func putWebhookEndpoint(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, site SiteID, target string,
	events []WebhookEventType,
) (endpoint WebhookEndpoint, taken int, err error) {
	var row webhookEndpointRow
	err = tx.Get(ctx, putWebhookEndpointSQL, postgres.Args{
		"organisation": organisation, "site": site, "url": target, "events": events, "width": newWebhookBreaker().Width,
	}, &row)
	if err != nil {
		return WebhookEndpoint{}, 0, err
	}
	if err := closeAlerts(ctx, tx, alertEndpointDisabled, endpointName(organisation, site)); err != nil {
		return WebhookEndpoint{}, 0, err
	}
	if err := reviveWaiting(ctx, tx, organisation, site); err != nil || site.IsZero() {
		return row.endpoint(), 0, err
	}
	taken, err = takeOverStep(ctx, tx, organisation, site)
	return row.endpoint(), taken, err
}

// DeleteWebhookEndpoint removes an endpoint. The zero Site means the default. The pending events of
// a Site's endpoint go to the default; without a default, they become undelivered.
// ErrNoWebhookEndpoint: there was no such endpoint.
func (s *Store) DeleteWebhookEndpoint(ctx context.Context, organisation OrganisationID, site SiteID) error {
	actFrom(ctx).aboutEndpoint(organisation, site)
	err := s.act(ctx, func(tx postgres.Tx) error {
		row := &webhookEndpointRow{OrganisationID: organisation, SiteID: site}
		res, err := tx.NewDelete().Model(row).WherePK().Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, ErrNoWebhookEndpoint)
		}
		return reviveWaiting(ctx, tx, organisation, site)
	})
	return wrap("delete webhook endpoint", err)
}

// aboutEndpoint sets an endpoint as the act's subject: "default", or the siteId.
func (a *Act) aboutEndpoint(organisation OrganisationID, site SiteID) *Act {
	name := "default"
	if !site.IsZero() {
		name = site.String()
	}
	return a.about(SubjectWebhookEndpoint, name).in(organisation, site)
}

// hostOf returns the host of an endpoint's URL. Path and query may hold a partner's secrets.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Host
}

// endpointName names an endpoint in alerts.
func endpointName(organisation OrganisationID, site SiteID) string {
	if site.IsZero() {
		return organisation.String() + " default"
	}
	return organisation.String() + " " + site.String()
}
