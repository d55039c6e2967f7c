package models

import (
	"context"
	"database/sql"
	"errors"

	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

type webhookEndpointRow struct {
	bun.BaseModel `bun:"table:webhook_endpoints"`

	OrganisationID OrganisationID     `bun:"organisation_id,pk"`
	SiteID         SiteID             `bun:"site_id,pk"`
	URL            string             `bun:"url"`
	Events         []WebhookEventType `bun:"events,array"`
	CreatedAt      Millis             `bun:"created_at"`
	UpdatedAt      Millis             `bun:"updated_at"`
	DisabledAt     Millis             `bun:"disabled_at,nullzero"`
	Failures       int                `bun:"failures"`
	OpenUntil      Millis             `bun:"open_until,nullzero"`
	Openings       int                `bun:"openings"`
	Width          int                `bun:"width"`
	GoneSince      Millis             `bun:"gone_since,nullzero"`
}

func (r *webhookEndpointRow) endpoint() WebhookEndpoint {
	return WebhookEndpoint{
		r.OrganisationID, r.SiteID, r.URL, r.Events, r.CreatedAt, r.UpdatedAt, r.DisabledAt,
		WebhookBreaker{r.Failures, r.OpenUntil, r.Openings, r.Width, r.GoneSince},
	}
}

// deliveryColumns are the columns of webhook_endpoints w that deliveries need; deliveryFields are
// their scan targets.
const deliveryColumns = `w.organisation_id, w.site_id, w.url, coalesce(w.disabled_at, 0), w.failures, coalesce(w.open_until, 0), w.openings,
    w.width, coalesce(w.gone_since, 0)`

func (r *webhookEndpointRow) deliveryFields() []any {
	return []any{
		&r.OrganisationID, &r.SiteID, &r.URL, &r.DisabledAt, &r.Failures, &r.OpenUntil, &r.Openings, &r.Width, &r.GoneSince,
	}
}

// WebhookEndpoint returns the endpoint of the Site, or for the zero Site the organisation's
// default. ErrNoWebhookEndpoint: that endpoint is not configured, even if the default is.
func (s *Store) WebhookEndpoint(
	ctx context.Context, organisation OrganisationID, site SiteID,
) (WebhookEndpoint, error) {
	row := &webhookEndpointRow{OrganisationID: organisation, SiteID: site}
	err := s.pg.Do(ctx, func() error { return s.db.NewSelect().Model(row).WherePK().Scan(ctx) })
	if errors.Is(err, sql.ErrNoRows) {
		return WebhookEndpoint{}, ErrNoWebhookEndpoint
	}
	return row.endpoint(), wrap("webhook endpoint", err)
}

// WebhookEndpoints returns the organisation's endpoints: the default first, then those of Sites in
// the order of their ids.
func (s *Store) WebhookEndpoints(ctx context.Context, organisation OrganisationID) ([]WebhookEndpoint, error) {
	var rows []webhookEndpointRow
	err := s.pg.Do(ctx, func() error {
		rows = nil
		return s.db.NewSelect().Model(&rows).Where("organisation_id = ?", organisation).Order("site_id").Scan(ctx)
	})
	endpoints := make([]WebhookEndpoint, len(rows))
	for i := range rows {
		endpoints[i] = rows[i].endpoint()
	}
	return endpoints, wrap("webhook endpoints", err)
}

// PutWebhookEndpoint configures and enables an endpoint, and resets its breaker: parked events go
// out. The zero Site means the default. The organisation's first endpoint also creates its secret;
// else secret is nil. The caller has checked the URL (WebhookTargets). events are the subscribed
// types; none means EventTransactionStatus alone. *QuotaError refuses a new endpoint.
func (s *Store) PutWebhookEndpoint(
	ctx context.Context, ring *seal.Keyring, organisation OrganisationID, site SiteID, url string, events ...WebhookEventType,
) (endpoint WebhookEndpoint, secret *WebhookSecret, err error) {
	if len(events) == 0 {
		events = []WebhookEventType{EventTransactionStatus}
	}
	var taken int
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
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
		endpoint, taken, err = putWebhookEndpoint(ctx, tx, organisation, site, url, events)
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
	if err != nil || len(live) > 0 {
		return nil, err
	}
	var now Millis
	if err := tx.NewSelect().ColumnExpr("svc_now()").Scan(ctx, &now); err != nil {
		return nil, err
	}
	secret, err := insertWebhookSecret(ctx, tx, ring, organisation, now, now)
	return &secret, err
}

func putWebhookEndpoint(
	ctx context.Context, tx postgres.Tx, organisation OrganisationID, site SiteID, url string, events []WebhookEventType,
) (endpoint WebhookEndpoint, taken int, err error) {
	row := &webhookEndpointRow{OrganisationID: organisation, SiteID: site}
	err = tx.NewRaw(`
		INSERT INTO webhook_endpoints AS e (organisation_id, site_id, url, events, created_at, updated_at, width)
		VALUES (?, ?, ?, ?, svc_now(), svc_now(), ?)
		ON CONFLICT (organisation_id, site_id) DO UPDATE
		SET url = excluded.url, events = excluded.events, updated_at = excluded.updated_at,
			disabled_at = NULL, failures = 0, open_until = NULL, openings = 0, width = excluded.width, gone_since = NULL
		RETURNING *`, organisation, site, url, pgdialect.Array(events), newWebhookBreaker().Width).Scan(ctx, row)
	if err != nil {
		return WebhookEndpoint{}, 0, err
	}
	if err := closeAlert(ctx, tx, alertEndpointDisabled, endpointName(organisation, site)); err != nil {
		return WebhookEndpoint{}, 0, err
	}
	if err := reviveWaiting(ctx, tx, organisation, site); err != nil || site.IsZero() {
		return row.endpoint(), 0, err
	}
	taken, err = takeOverStep(ctx, tx.Tx.Tx, organisation, site)
	return row.endpoint(), taken, err
}

// DeleteWebhookEndpoint removes an endpoint. Its pending events go to the default, or become
// undelivered without one. ErrNoWebhookEndpoint: there was no such endpoint.
func (s *Store) DeleteWebhookEndpoint(ctx context.Context, organisation OrganisationID, site SiteID) error {
	err := s.pg.InTx(ctx, func(tx postgres.Tx) error {
		res, err := tx.NewDelete().Model(&webhookEndpointRow{OrganisationID: organisation, SiteID: site}).WherePK().Exec(ctx)
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

// The kinds of alerts about webhooks.
const (
	alertEndpointDisabled = "webhookEndpointDisabled" // subject: organisation and Site
	alertWebhookFailed    = "webhookFailed"           // subject: the event
)

// endpointName names an endpoint in alerts.
func endpointName(organisation OrganisationID, site SiteID) string {
	if site.IsZero() {
		return organisation.String() + " default"
	}
	return organisation.String() + " " + site.String()
}

func closeAlert(ctx context.Context, tx postgres.Tx, kind, subject string) error {
	_, err := tx.Tx.Tx.ExecContext(ctx, `
UPDATE alerts SET closed_at = svc_now() WHERE kind = $1 AND subject = $2 AND closed_at IS NULL`, kind, subject)
	return err
}

// alert is an alert to raise.
type alert struct {
	kind, subject, detail string
	organisation          OrganisationID
	site                  SiteID
	trace                 TraceID
}

func raiseAlert(ctx context.Context, tx postgres.Tx, a alert) error {
	_, err := tx.Tx.Tx.ExecContext(ctx, `
SELECT raise_alert($1, $2, $3, nullif($4::uuid, '00000000-0000-0000-0000-000000000000'), $5, $6)`,
		a.kind, a.subject, a.organisation, a.site, a.detail, string(a.trace))
	return err
}
