package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// ReadinessCheck checks one dependency of the service. Check returns nil if the service can use the
// dependency.
type ReadinessCheck struct {
	Name     string // of the dependency, such as "postgres"
	Required bool   // the service is not ready while the check fails
	Check    func(context.Context) error
}

// Time limits of a readiness check. An optional check must not make a probe time out.
const (
	checkTimeout         = 2 * time.Second
	optionalCheckTimeout = 40 * time.Millisecond
)

// timeout returns the time limit of the check.
func (c ReadinessCheck) timeout() time.Duration {
	if c.Required {
		return checkTimeout
	}
	return optionalCheckTimeout
}

// liveness is the data of /livez.
type liveness struct {
	Status string `json:"status"`
}

// readiness is the data of /readyz. Checks has "ok" or "unavailable" for each check by name.
type readiness struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`
}

// live answers /livez: the process can answer.
func live(_ context.Context, r *Request) error {
	return r.JSON(http.StatusOK, alive)
}

var alive = liveness{Status: "live"}

// readyHandler returns the handler of /readyz.
func readyHandler(cfg Config) Handler {
	return func(ctx context.Context, r *Request) error {
		answer, refusal := checkReadiness(ctx, cfg.Checks, cfg.Log)
		if refusal != nil {
			return refusal
		}
		return r.JSON(http.StatusOK, answer)
	}
}

// healthHandler answers /livez and /readyz as the API does, on a listener other than the API's.
func healthHandler(checks []ReadinessCheck, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, models.NewTraceID(), alive, nil)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		trace := models.NewTraceID()
		answer, refusal := checkReadiness(models.WithTraceID(r.Context(), trace), checks, log)
		writeHealth(w, trace, answer, refusal)
	})
	return mux
}

// writeHealth writes the refusal, or data in its envelope if refusal is nil.
func writeHealth(w http.ResponseWriter, trace models.TraceID, data any, refusal *Error) {
	w.Header().Set("Content-Type", ContentTypeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if refusal != nil {
		w.Header().Set("Retry-After", seconds(refusal.RetryAfter))
		w.WriteHeader(refusal.Status())
		_, _ = w.Write(errorBody(refusal, trace, false, time.Time{}))
		return
	}
	encoded, _ := EncodeData(data) // strings always encode
	_, _ = w.Write(envelope(encoded, trace))
}

// checkReadiness runs all checks concurrently. It returns a refusal if a required check fails. The
// checks' errors are logged, never shown.
func checkReadiness(ctx context.Context, checks []ReadinessCheck, log *slog.Logger) (readiness, *Error) {
	answer := readiness{Status: "ready", Checks: make(map[string]string, len(checks))}
	refusal := &Error{RetryAfter: retryUnavailable}
	for i, err := range runChecks(ctx, checks) {
		check := checks[i]
		answer.Checks[check.Name] = "ok"
		if err == nil {
			continue
		}
		answer.Checks[check.Name] = "unavailable"
		log.WarnContext(ctx, "readiness check failed", logs.OutageOf(check.Name), "error", err)
		if check.Required {
			refusal.Add(Fault{Code: Unavailable, Target: check.Name})
			refusal.Cause = err
		}
	}
	if len(refusal.Faults) > 0 {
		return answer, refusal
	}
	return answer, nil
}

// runChecks runs all checks concurrently, each with its time limit. It returns their errors in the
// order of the checks.
func runChecks(ctx context.Context, checks []ReadinessCheck) []error {
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.timeout())
			defer cancel()
			errs[i] = c.Check(ctx)
		})
	}
	wg.Wait()
	return errs
}

// dependencyCollector runs the readiness checks at each scrape.
type dependencyCollector struct {
	checks []ReadinessCheck
	up     *prometheus.Desc
}

// RegisterDependencies registers the metric svc_dependency_up. For each check it is 1 if the check
// passes, else 0.
func RegisterDependencies(reg prometheus.Registerer, checks []ReadinessCheck) {
	reg.MustRegister(dependencyCollector{checks, prometheus.NewDesc("svc_dependency_up",
		"1 if this process reaches the dependency and can use it, else 0.", []string{"dependency"}, nil)})
}

// Describe implements prometheus.Collector.
func (c dependencyCollector) Describe(out chan<- *prometheus.Desc) { out <- c.up }

// Collect implements prometheus.Collector.
func (c dependencyCollector) Collect(out chan<- prometheus.Metric) {
	for i, err := range runChecks(context.Background(), c.checks) {
		up := 1.0
		if err != nil {
			up = 0
		}
		out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up, c.checks[i].Name)
	}
}
