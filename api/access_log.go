package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"partnerbilling/models/logs"
)

// probes are the routes that monitors call every few seconds.
var probes = []string{"/livez", "/readyz", "/metrics"}

// logAccess writes the access log line of a request: method, route, status and the time taken in
// ms. It adds the client, the organisation, the Site and the client's address if they are known.
// Successful probes are logged at level debug, other requests at level info.
func (s *Server) logAccess(ctx context.Context, r *Request, method, route string, took time.Duration) {
	status, level := r.fast.Response.StatusCode(), slog.LevelInfo
	if slices.Contains(probes, route) && status < http.StatusBadRequest {
		level = slog.LevelDebug
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	attrs := [...]slog.Attr{ // slog drops empty ones
		slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Float64("ms", float64(took.Microseconds())/1000), {}, {}, {}, {},
	}
	if !r.Principal.ClientID.IsZero() {
		attrs[4] = slog.String(logs.ClientID, r.Principal.ClientID.String())
	}
	if !r.Principal.OrganisationID.IsZero() {
		attrs[5] = slog.String(logs.OrganisationID, r.Principal.OrganisationID.String())
	}
	if !r.Site.ID.IsZero() {
		attrs[6] = slog.String(logs.SiteID, r.Site.ID.String())
	}
	if r.address.IsValid() {
		attrs[7] = slog.String("address", r.address.String())
	}
	s.log.LogAttrs(ctx, level, "request", attrs[:]...)
}
