package models

import (
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"
)

type webhookEndpointRow struct {
	bun.BaseModel `bun:"table:webhook_endpoints"`

	OrganisationID OrganisationID `bun:"organisation_id,pk"`
	SiteID         SiteID         `bun:"site_id,pk"`
	URL            string         `bun:"url"`
	CreatedAt      Millis         `bun:"created_at"`
	UpdatedAt      Millis         `bun:"updated_at"`
	DisabledAt     Millis         `bun:"disabled_at,nullzero"`
	Failures       int            `bun:"failures"`
	OpenUntil      Millis         `bun:"open_until,nullzero"`
	Openings       int            `bun:"openings"`
	Width          int            `bun:"width"`
	GoneSince      Millis         `bun:"gone_since,nullzero"`
}

func (r *webhookEndpointRow) endpoint() WebhookEndpoint {
	return WebhookEndpoint{
		r.OrganisationID, r.SiteID, r.URL, r.CreatedAt, r.UpdatedAt, r.DisabledAt,
		WebhookBreaker{r.Failures, r.OpenUntil, r.Openings, r.Width, r.GoneSince},
	}
}

// deliveryColumns of webhook_endpoints w are what deliveries go by; deliveryFields are where they go.
const deliveryColumns = `w.organisation_id, w.site_id, w.url, coalesce(w.disabled_at, 0), w.failures, coalesce(w.open_until, 0), w.openings,
    w.width, coalesce(w.gone_since, 0)`

func (r *webhookEndpointRow) deliveryFields() []any {
	return []any{
		&r.OrganisationID, &r.SiteID, &r.URL, &r.DisabledAt, &r.Failures, &r.OpenUntil, &r.Openings, &r.Width, &r.GoneSince,
	}
}

// WebhookEndpoint is the endpoint at one place: of the Site, or for the zero Site the organisation's default. Else
// ErrNoWebhookEndpoint; an override that is not there does not show the default.
func (s *Store) WebhookEndpoint(ctx context.Context, organisation OrganisationID, site SiteID) (WebhookEndpoint, error) {
	row := &webhookEndpointRow{OrganisationID: organisation, SiteID: site}
	err := s.statement(ctx, func() error { return s.db.NewSelect().Model(row).WherePK().Scan(ctx) })
	if errors.Is(err, sql.ErrNoRows) {
		return WebhookEndpoint{}, ErrNoWebhookEndpoint
	}
	return row.endpoint(), wrap("webhook endpoint", err)
}

// PutWebhookEndpoint configures the endpoint at one place, enables it, and forgets what was held against it: events that
// wait for it go out. The organisation's first endpoint comes with its secret; else secret is nil. The URL must have been
// checked (WebhookTargets).
func (s *Store) PutWebhookEndpoint(
	ctx context.Context, ring *Keyring, organisation OrganisationID, site SiteID, url string,
) (endpoint WebhookEndpoint, secret *WebhookSecret, err error) {
	var taken int
	err = s.inTx(ctx, func(tx bun.Tx) error {
		secret = nil
		if err := lockWebhookSecrets(ctx, tx, organisation); err != nil {
			return err
		}
		if secret, err = ensureWebhookSecret(ctx, tx, ring, organisation); err != nil {
			return err
		}
		endpoint, taken, err = putWebhookEndpoint(ctx, tx, organisation, site, url)
		return err
	})
	if err == nil && taken == reviveStep {
		s.takeOver(ctx, organisation, site)
	}
	return endpoint, secret, wrap("put webhook endpoint", err)
}

// ensureWebhookSecret makes the organisation's first secret; nil if it has one.
func ensureWebhookSecret(ctx context.Context, tx bun.Tx, ring *Keyring, organisation OrganisationID) (*WebhookSecret, error) {
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
	ctx context.Context, tx bun.Tx, organisation OrganisationID, site SiteID, url string,
) (endpoint WebhookEndpoint, taken int, err error) {
	row := &webhookEndpointRow{OrganisationID: organisation, SiteID: site}
	err = tx.NewRaw(`
		INSERT INTO webhook_endpoints AS e (organisation_id, site_id, url, created_at, updated_at, width)
		VALUES (?, ?, ?, svc_now(), svc_now(), ?)
		ON CONFLICT (organisation_id, site_id) DO UPDATE SET url = excluded.url, updated_at = excluded.updated_at,
			disabled_at = NULL, failures = 0, open_until = NULL, openings = 0, width = excluded.width, gone_since = NULL
		RETURNING *`, organisation, site, url, newWebhookBreaker().Width).Scan(ctx, row)
	if err != nil {
		return WebhookEndpoint{}, 0, err
	}
	if err := closeAlert(ctx, tx, alertEndpointDisabled, endpointName(organisation, site)); err != nil {
		return WebhookEndpoint{}, 0, err
	}
	taken, err = reviveParked(ctx, tx, organisation, site)
	return row.endpoint(), taken, err
}

// DeleteWebhookEndpoint removes the endpoint at one place. Events that are not delivered yet go to the default, if there
// is one, or become undelivered. ErrNoWebhookEndpoint if there was none.
func (s *Store) DeleteWebhookEndpoint(ctx context.Context, organisation OrganisationID, site SiteID) error {
	err := s.inTx(ctx, func(tx bun.Tx) error {
		res, err := tx.NewDelete().Model(&webhookEndpointRow{OrganisationID: organisation, SiteID: site}).WherePK().Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, ErrNoWebhookEndpoint)
		}
		_, err = reviveParked(ctx, tx, organisation, site)
		return err
	})
	return wrap("delete webhook endpoint", err)
}

// reviveStep is how many events one transaction revives: of an endpoint that has been down for long very many may wait.
const reviveStep = 1000

// reviveSQL makes events due that wait for one endpoint, $2, the longest waiting first: all of them, or those of the Site $3. One endpoint
// at a time, since only so the index has them in order, and a step does not read those of all steps to come. Those that others are at find
// out by themselves.
const reviveSQL = `
WITH waiting AS (
    SELECT organisation_id, id FROM webhook_events
    WHERE organisation_id = $1 AND is_parked AND endpoint_site_id = $2 AND ($3::uuid IS NULL OR site_id = $3)
    ORDER BY requested_at, id LIMIT $4 FOR UPDATE SKIP LOCKED
), revived AS (
    UPDATE webhook_events w SET is_parked = false FROM waiting p
    WHERE w.organisation_id = p.organisation_id AND w.id = p.id RETURNING w.task_id
)
UPDATE outbox o SET available_at = svc_now(), dispatched_at = NULL, redispatch_after = NULL
FROM revived r WHERE o.id = r.task_id`

// reviveParked makes events due that wait for an endpoint, since the endpoint is not what it was. An override takes over events
// that wait for the default. Those that still find no room are parked anew; those beyond a step are released as the endpoint
// takes them (releaseSQL), but for what an override takes over (see takeOver). It reports how many were taken over.
func reviveParked(ctx context.Context, tx bun.Tx, organisation OrganisationID, site SiteID) (taken int, err error) {
	if _, err := tx.Tx.ExecContext(ctx, reviveSQL, organisation, site, nil, reviveStep); err != nil || site.IsZero() {
		return 0, err
	}
	res, err := tx.Tx.ExecContext(ctx, reviveSQL, organisation, SiteID{}, site, reviveStep)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// takeOver revives, step by step, what waits for the default and is an override's now. The override is there, so that an error
// ends only this: what is left asks by itself after parkedFor, or once the default takes it.
func (s *Store) takeOver(ctx context.Context, organisation OrganisationID, site SiteID) {
	for n := reviveStep; n == reviveStep; {
		var err error
		if n, err = s.execCount(ctx, "take over webhooks", reviveSQL, organisation, SiteID{}, site, reviveStep); err != nil {
			return
		}
	}
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

func closeAlert(ctx context.Context, tx bun.Tx, kind, subject string) error {
	_, err := tx.Tx.ExecContext(ctx, `
UPDATE alerts SET closed_at = svc_now() WHERE kind = $1 AND subject = $2 AND closed_at IS NULL`, kind, subject)
	return err
}

// alert is something that an operator must look at.
type alert struct {
	kind, subject, detail string
	organisation          OrganisationID
	site                  SiteID
	trace                 TraceID
}

func raiseAlert(ctx context.Context, tx bun.Tx, a alert) error {
	_, err := tx.Tx.ExecContext(ctx, `
INSERT INTO alerts (kind, subject, organisation_id, site_id, detail, trace_id, raised_at)
VALUES ($1, $2, $3, nullif($4::uuid, '00000000-0000-0000-0000-000000000000'), $5, $6, svc_now())
ON CONFLICT (kind, subject) DO UPDATE SET detail = excluded.detail, raised_at = excluded.raised_at, closed_at = NULL`,
		a.kind, a.subject, a.organisation, a.site, a.detail, string(a.trace))
	return err
}
