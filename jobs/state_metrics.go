package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// scrapeTimeout bounds the query of one scrape.
const scrapeTimeout = 2 * time.Second

// stateCollector reads models.Figures from Postgres at each scrape. Every worker reports the same
// values.
type stateCollector struct {
	store                                      *models.Store
	log                                        *slog.Logger
	oldestBatch, endpoints, events, openAlerts *prometheus.Desc
}

// RegisterStateMetrics registers gauges of the state of the whole service, for operators.
func RegisterStateMetrics(reg prometheus.Registerer, store *models.Store, log *slog.Logger) {
	reg.MustRegister(&stateCollector{
		store: store, log: log,
		oldestBatch: prometheus.NewDesc("svc_batch_oldest_open_seconds",
			"Age of the oldest batch that is not settled; it must settle within 24 hours.", nil, nil),
		endpoints: prometheus.NewDesc("svc_webhook_endpoints_parked",
			"Webhook endpoints with parked events; at most 1000 are counted.", nil, nil),
		events: prometheus.NewDesc("svc_webhook_events_parked",
			"Webhook events that wait for their endpoint; at most 1000 are counted.", nil, nil),
		openAlerts: prometheus.NewDesc("svc_alerts_open",
			"Open alerts of `svc admin alerts`, by kind; at most 1000 of each are counted.", []string{"kind"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.oldestBatch
	out <- c.endpoints
	out <- c.events
	out <- c.openAlerts
}

// Collect implements prometheus.Collector. Without Postgres it sends nothing, rather than zeros.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	f, err := c.store.Figures(ctx)
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the state metrics", "error", err)
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(c.oldestBatch, f.OldestOpenBatch.Seconds())
	gauge(c.endpoints, float64(f.ParkedEndpoints))
	gauge(c.events, float64(f.ParkedEvents))
	for kind, n := range f.OpenAlerts {
		gauge(c.openAlerts, float64(n), kind)
	}
}
