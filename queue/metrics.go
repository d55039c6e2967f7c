package queue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// backlogCollector reads the backlogs of the queues from Postgres at each scrape, for the gauges of
// RegisterMetrics. It does not use Asynq's own gauges: they are zero after a requeue, and disappear
// if a key in Redis is broken.
type backlogCollector struct {
	store                             *models.Store
	log                               *slog.Logger
	inFlight, due, oldestDue, partner *prometheus.Desc
}

// watchedPartners is the number of organisations of each queue that have a gauge of their own:
// those that have waited longest. The others share one gauge.
const watchedPartners = 10

// otherPartners is the value of the label "organisation" for the shared gauge.
const otherPartners = "other"

// ScrapeTimeout bounds the queries of a collector in one scrape.
const ScrapeTimeout = 2 * time.Second

// RegisterMetrics registers the gauges of the queues' backlogs, by which workers are scaled, and
// the server's counter of Redis errors.
func RegisterMetrics(reg prometheus.Registerer, store *models.Store, server *Server, log *slog.Logger) {
	reg.MustRegister(server.gate.faults, &backlogCollector{
		store: store, log: log,
		inFlight: prometheus.NewDesc("svc_tasks_in_flight",
			"Tasks in flight: enqueued or running.", []string{"queue"}, nil),
		due: prometheus.NewDesc("svc_tasks_due",
			fmt.Sprintf("Due tasks, in flight or not; at most %d that are not dispatched are counted.",
				models.MaxWaitingCounted), []string{"queue"}, nil),
		oldestDue: prometheus.NewDesc("svc_tasks_oldest_due_seconds",
			"Age of the oldest due task that is not dispatched.", []string{"queue"}, nil),
		partner: prometheus.NewDesc("svc_partner_oldest_due_seconds",
			fmt.Sprintf("Age of an organisation's oldest due task that is not dispatched: of those that have waited "+
				"longest, and of all others together. At most %d Sites with waiting tasks are looked at.",
				models.WatchedSites), []string{"queue", "organisation"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *backlogCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.inFlight
	out <- c.due
	out <- c.oldestDue
	out <- c.partner
}

// Collect implements prometheus.Collector. Without Postgres it sends nothing, rather than zeros.
func (c *backlogCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), ScrapeTimeout)
	defer cancel()
	backlogs, err := c.store.Backlogs(ctx)
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the backlogs", logs.Outage(err), "error", err)
		return
	}
	for _, b := range backlogs {
		oldest := b.OldestDue.Duration().Seconds()
		out <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(b.InFlight), string(b.Queue))
		out <- prometheus.MustNewConstMetric(c.due, prometheus.GaugeValue, float64(b.Due), string(b.Queue))
		out <- prometheus.MustNewConstMetric(c.oldestDue, prometheus.GaugeValue, oldest, string(b.Queue))
	}
	partners, err := c.store.PartnerBacklogs(ctx) // last: the scaling of workers needs the gauges above
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the backlogs of partners", logs.Outage(err), "error", err)
		return
	}
	c.collectPartners(out, partners)
}

// collectPartners sends, for each queue, a gauge for each of the organisations that have waited
// longest. Another gauge has the greatest age of all others: 0 if there are none. backlogs are
// sorted by age, the oldest first.
func (c *backlogCollector) collectPartners(out chan<- prometheus.Metric, backlogs []models.PartnerBacklog) {
	sent := map[models.Queue]int{}
	others := map[models.Queue]float64{}
	for _, queue := range models.PausableQueues {
		others[queue] = 0
	}
	gauge := func(queue models.Queue, organisation string, age float64) {
		out <- prometheus.MustNewConstMetric(c.partner, prometheus.GaugeValue, age, string(queue), organisation)
	}
	for _, b := range backlogs {
		if sent[b.Queue] < watchedPartners {
			gauge(b.Queue, b.OrganisationID.String(), b.OldestDue.Duration().Seconds())
			sent[b.Queue]++
		} else {
			others[b.Queue] = max(others[b.Queue], b.OldestDue.Duration().Seconds())
		}
	}
	for queue, age := range others {
		gauge(queue, otherPartners, age)
	}
}
