package models

import (
	"context"
	_ "embed" // statements
	"errors"

	"partnerbilling/models/postgres"
)

// ErrNotBlocked says that an endpoint is enabled, has a closed breaker, and has no parked event.
var ErrNotBlocked = errors.New("models: the endpoint is not blocked")

var (
	unparkEndpointSQL = postgres.SQL(`
UPDATE webhook_endpoints e SET disabled_at = NULL, failures = 0, open_until = NULL, openings = 0, width = :width,
    gone_since = NULL
WHERE e.organisation_id = :organisation AND e.site_id = :site AND (e.disabled_at IS NOT NULL
    OR e.open_until IS NOT NULL OR EXISTS (
        SELECT FROM webhook_slots w
        WHERE w.organisation_id = e.organisation_id AND w.endpoint_site_id = e.site_id AND w.until IS NULL))`)

	//go:embed webhook_endpoint_troubled.sql
	troubledEndpointsText string
	troubledEndpointsSQL  = postgres.SQL(troubledEndpointsText)
)

// UnparkWebhookEndpoint enables an endpoint, resets its breaker, and makes its parked events due,
// as a PUT of the same configuration does. The zero Site means the default. Errors:
// ErrNoWebhookEndpoint; ErrNotBlocked.
func (s *Store) UnparkWebhookEndpoint(ctx context.Context, organisation OrganisationID, site SiteID) error {
	actFrom(ctx).aboutEndpoint(organisation, site)
	if _, err := s.WebhookEndpoint(ctx, organisation, site); err != nil {
		return err
	}
	err := s.act(ctx, func(tx postgres.Tx) error {
		n, err := tx.Run(ctx, unparkEndpointSQL, postgres.Args{
			"organisation": organisation, "site": site, "width": newWebhookBreaker().Width,
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return ErrNotBlocked
		}
		if err := closeAlerts(ctx, tx, alertEndpointDisabled, endpointName(organisation, site)); err != nil {
			return err
		}
		return reviveWaiting(ctx, tx, organisation, site)
	})
	return wrap("unpark webhook endpoint", err)
}

// TroubledEndpoint is an endpoint that needs an operator's attention. It is disabled, its last
// FailingThreshold attempts failed, its breaker is not closed, or it has parked events.
type TroubledEndpoint struct {
	OrganisationID OrganisationID
	Organisation   string // its name
	SiteID         SiteID // zero: the organisation's default
	Host           string // of its URL; the rest of the URL may hold secrets
	Failures       int    // consecutive
	OpenUntil      Millis // end of the breaker's open state; 0: closed
	DisabledAt     Millis // 0: enabled
	Parked         int    // events, at most MostCounted
	ParkedSince    Millis // the earliest RequestedAt of a parked event; 0: none
}

// IsBlocked reports whether the endpoint is disabled, has a breaker that is not closed, or has
// parked events, so that UnparkWebhookEndpoint would change it.
func (e *TroubledEndpoint) IsBlocked() bool {
	return e.DisabledAt != 0 || e.OpenUntil != 0 || e.Parked > 0
}

// TroubledEndpoints returns the endpoints that need an operator's attention, at most limit, by
// organisation id and Site id.
func (s *Store) TroubledEndpoints(ctx context.Context, limit int) ([]TroubledEndpoint, error) {
	var rows []struct {
		TroubledEndpoint
		URL string
	}
	err := s.pg.Select(ctx, troubledEndpointsSQL, postgres.Args{
		"limit": limit, "failing": FailingThreshold, "most": MostCounted,
	}, &rows)
	endpoints := make([]TroubledEndpoint, len(rows))
	for i, r := range rows {
		endpoints[i] = r.TroubledEndpoint
		endpoints[i].Host = hostOf(r.URL)
	}
	return endpoints, wrap("troubled endpoints", err)
}
