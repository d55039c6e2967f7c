package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// backlogCollector reads the queues' figures from Postgres whenever they are scraped. Asynq's own figures read zero after
// a requeue and fall silent with a broken key: what waits is known in Postgres.
type backlogCollector struct {
	store               *models.Store
	log                 *slog.Logger
	inFlight, oldestDue *prometheus.Desc
}

// scrapeWithin bounds the reading for one scrape.
const scrapeWithin = 2 * time.Second

// RegisterMetrics registers the figures that workers are scaled on, and how the server fares with Redis.
func RegisterMetrics(reg prometheus.Registerer, store *models.Store, server *Server, log *slog.Logger) {
	reg.MustRegister(server.rester.failed, &backlogCollector{
		store: store, log: log,
		inFlight: prometheus.NewDesc("svc_tasks_in_flight", "Tasks in Redis or in work.", []string{"queue"}, nil),
		oldestDue: prometheus.NewDesc("svc_tasks_oldest_due_seconds",
			"Age of the oldest due task that has not gone out.", []string{"queue"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *backlogCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.inFlight
	out <- c.oldestDue
}

// Collect implements prometheus.Collector. Without Postgres there are no figures, rather than zeros.
func (c *backlogCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	backlogs, err := c.store.Backlogs(ctx)
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the backlogs", "error", err)
		return
	}
	for _, b := range backlogs {
		out <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(b.InFlight), string(b.Queue))
		out <- prometheus.MustNewConstMetric(c.oldestDue, prometheus.GaugeValue, b.OldestDue.Seconds(), string(b.Queue))
	}
}
