package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// figuresWithin bounds the reading for one scrape.
const figuresWithin = 2 * time.Second

// figuresCollector reads models.Figures whenever they are scraped. Every worker tells the same.
type figuresCollector struct {
	store                                      *models.Store
	log                                        *slog.Logger
	oldestBatch, endpoints, events, openAlerts *prometheus.Desc
}

// RegisterFigures registers what an operator has to know of the state as a whole.
func RegisterFigures(reg prometheus.Registerer, store *models.Store, log *slog.Logger) {
	reg.MustRegister(&figuresCollector{
		store: store, log: log,
		oldestBatch: prometheus.NewDesc("svc_batch_oldest_open_seconds",
			"Time since the submission of the batch that is to settle next; it must within 24 hours.", nil, nil),
		endpoints: prometheus.NewDesc("svc_webhook_endpoints_parked",
			"Webhook endpoints that are down, so that events wait for them; 1000 at most.", nil, nil),
		events: prometheus.NewDesc("svc_webhook_events_parked", "Webhook events that wait for their endpoint; 1000 at most.", nil, nil),
		openAlerts: prometheus.NewDesc("svc_alerts_open",
			"Alerts of `svc admin alerts` that nobody has closed, by kind; 1000 of each at most.", []string{"kind"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *figuresCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.oldestBatch
	out <- c.endpoints
	out <- c.events
	out <- c.openAlerts
}

// Collect implements prometheus.Collector. Without Postgres there are no figures, rather than zeros.
func (c *figuresCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), figuresWithin)
	defer cancel()
	f, err := c.store.Figures(ctx)
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the figures", "error", err)
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
