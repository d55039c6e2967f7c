package queue

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// backlogCollector reads the backlogs of the queues from Postgres at each scrape. Asynq's own
// gauges read zero after a requeue and disappear with a broken key.
type backlogCollector struct {
	store               *models.Store
	log                 *slog.Logger
	inFlight, oldestDue *prometheus.Desc
}

// scrapeTimeout bounds the query of one scrape.
const scrapeTimeout = 2 * time.Second

// RegisterMetrics registers the gauges that workers are scaled on, and the server's counter of
// Redis errors.
func RegisterMetrics(reg prometheus.Registerer, store *models.Store, server *Server, log *slog.Logger) {
	reg.MustRegister(server.gate.faults, &backlogCollector{
		store: store, log: log,
		inFlight: prometheus.NewDesc("svc_tasks_in_flight",
			"Tasks in flight: enqueued or running.", []string{"queue"}, nil),
		oldestDue: prometheus.NewDesc("svc_tasks_oldest_due_seconds",
			"Age of the oldest due task that is not dispatched.", []string{"queue"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *backlogCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.inFlight
	out <- c.oldestDue
}

// Collect implements prometheus.Collector. Without Postgres it sends nothing, rather than zeros.
func (c *backlogCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	backlogs, err := c.store.Backlogs(ctx)
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the backlogs", logs.Outage(err), "error", err)
		return
	}
	for _, b := range backlogs {
		out <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(b.InFlight), string(b.Queue))
		out <- prometheus.MustNewConstMetric(c.oldestDue, prometheus.GaugeValue, b.OldestDue.Seconds(), string(b.Queue))
	}
}
