package api

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of all HTTP requests. Labels have few values: routes are templates, never
// paths.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svc_http_requests_total",
			Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "svc_http_request_duration_seconds",
			Help:    "Time from the request's headers to its answer, by route and method.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
	}
	registry.MustRegister(m.requests, m.duration)
	return m
}

// observe records an answered request. took is the time from its headers to its answer.
func (m *metrics) observe(route, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, method, statusName(status)).Inc()
	m.duration.WithLabelValues(route, method).Observe(took.Seconds())
}

// metricsHandler returns the handler of /metrics: the registry in Prometheus's text format.
func metricsHandler(registry prometheus.Gatherer) Handler {
	page := newMetricsPage(registry)
	return func(ctx context.Context, r *Request) error {
		text, err := page.get(ctx)
		if err != nil {
			return err
		}
		return r.Bytes(http.StatusOK, string(metricsFormat), text)
	}
}

// register creates and registers the metrics of the admission.
func (a *admission) register(registry *prometheus.Registry) {
	a.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "svc_http_busy_total",
		Help: "HTTP requests refused because too many were running or waiting.",
	})
	a.waited = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "svc_http_queue_duration_seconds",
		Help:    "Time that HTTP requests waited until they could run.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	})
	count := func(of func() int) func() float64 {
		return func() float64 {
			a.mu.Lock()
			defer a.mu.Unlock()
			return float64(of())
		}
	}
	registry.MustRegister(a.refused, a.waited,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "svc_http_running", Help: "HTTP requests that run now."},
			count(func() int { return a.running })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "svc_http_waiting",
			Help: "HTTP requests that wait until they can run."},
			count(func() int { return a.queued })))
}

// bodyMetrics are the metrics of the memory for request bodies, by kind of body.
type bodyMetrics struct {
	inUse, limit *prometheus.GaugeVec
	refused      *prometheus.CounterVec
}

// bodyMemoryMetrics are the metrics of one byteSemaphore.
type bodyMemoryMetrics struct {
	inUse, limit        prometheus.Gauge
	full, slow, aborted prometheus.Counter // refused bodies by reason
}

func newBodyMetrics(registry *prometheus.Registry) *bodyMetrics {
	m := &bodyMetrics{
		inUse: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "svc_http_body_bytes",
			Help: "Bytes of request bodies in flight, by kind: small, large, and public before authentication.",
		}, []string{"kind"}),
		limit: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "svc_http_body_limit_bytes",
			Help: "Greatest number of bytes of request bodies in flight, by kind.",
		}, []string{"kind"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svc_http_body_refused_total",
			Help: "Request bodies refused, by kind and reason: no memory in time, too slow, aborted for another " +
				"body, not handled in time.",
		}, []string{"kind", "reason"}),
	}
	registry.MustRegister(m.inUse, m.limit, m.refused)
	return m
}

// of returns the metrics of a kind of bodies, each created with the value 0.
func (m *bodyMetrics) of(kind string) bodyMemoryMetrics {
	return bodyMemoryMetrics{
		inUse: m.inUse.WithLabelValues(kind), limit: m.limit.WithLabelValues(kind),
		full: m.refused.WithLabelValues(kind, "memory"), slow: m.refused.WithLabelValues(kind, "slow"),
		aborted: m.refused.WithLabelValues(kind, "aborted"),
	}
}
