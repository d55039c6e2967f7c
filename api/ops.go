package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Maximum ages of cached results. A readiness check runs at most once per checkMaxAge. The result
// of a scrape is never reused, but concurrent scrapes are merged.
const (
	checkMaxAge   = 500 * time.Millisecond
	metricsMaxAge = 0
)

// metricsTimeout is the deadline of a scrape. The registry takes no context, so the collectors' own
// time-outs, which are shorter, bound the scrape.
const metricsTimeout = time.Minute

// CacheChecks returns the checks with cached results. Each check runs at most twice a second, and
// concurrent calls share one run.
func CacheChecks(checks []ReadinessCheck) []ReadinessCheck {
	all := make([]ReadinessCheck, len(checks))
	for i, c := range checks {
		cached := newCachedCall(checkMaxAge, c.timeout(), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.Check(ctx)
		})
		all[i] = c
		all[i].Check = func(ctx context.Context) error {
			_, err := cached.get(ctx)
			return err
		}
	}
	return all
}

// OpsHandler returns the handler of /livez, /readyz and /metrics for a listener of their own,
// inside the operator's network.
func OpsHandler(checks []ReadinessCheck, registry *prometheus.Registry, log *slog.Logger) http.Handler {
	page := newMetricsPage(registry)
	mux := http.NewServeMux()
	mux.Handle("/", healthHandler(checks, log))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		text, err := page.get(r.Context())
		if err != nil {
			log.ErrorContext(r.Context(), "cannot write the metrics", "error", err)
			http.Error(w, "The metrics cannot be read.", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(metricsFormat))
		_, _ = w.Write(text)
	})
	return mux
}

// metricsFormat is Prometheus's text format.
var metricsFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// newMetricsPage returns the call that encodes the registry's metrics as text.
func newMetricsPage(registry prometheus.Gatherer) *cachedCall[[]byte] {
	return newCachedCall(metricsMaxAge, metricsTimeout, func(context.Context) ([]byte, error) {
		families, err := registry.Gather()
		if err != nil {
			return nil, fmt.Errorf("api: gather metrics: %w", err)
		}
		var b bytes.Buffer
		encoder := expfmt.NewEncoder(&b, metricsFormat)
		for _, family := range families {
			if err := encoder.Encode(family); err != nil {
				return nil, fmt.Errorf("api: write metrics: %w", err)
			}
		}
		return b.Bytes(), nil
	})
}
