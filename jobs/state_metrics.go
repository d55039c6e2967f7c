package jobs

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/queue"
)

// stateCollector reads the state of the service from Postgres at each scrape, for the gauges of
// RegisterStateMetrics. All workers report the same values.
type stateCollector struct {
	store                                       *models.Store
	log                                         *slog.Logger
	oldestBatch, endpoints, events, openAlerts  *prometheus.Desc
	reconciledTo, reconcileLag, inFlight        *prometheus.Desc
	auditAge, pauses                            *prometheus.Desc
	failing, transaction, standbys, replication *prometheus.Desc
	recurring, wraparound, archiveFailing       *prometheus.Desc
}

// RegisterStateMetrics registers gauges of the state of the whole service, for operators. Each
// scrape reads them from Postgres.
func RegisterStateMetrics(reg prometheus.Registerer, store *models.Store, log *slog.Logger) {
	counted := fmt.Sprintf("at most %d are counted.", models.MostCounted)
	reg.MustRegister(&stateCollector{
		store: store, log: log,
		oldestBatch: prometheus.NewDesc("svc_batch_oldest_open_seconds",
			"Age of the oldest batch that is not settled; it must settle within 24 hours.", nil, nil),
		endpoints: prometheus.NewDesc("svc_webhook_endpoints_parked",
			"Webhook endpoints with parked events; "+counted, nil, nil),
		events: prometheus.NewDesc("svc_webhook_events_parked",
			"Webhook events that wait for their endpoint; "+counted, nil, nil),
		openAlerts: prometheus.NewDesc("svc_alerts_open",
			fmt.Sprintf("Open alerts of `svc admin alerts`, by kind; at most %d of each are counted.",
				models.MostCounted), []string{"kind"}, nil),
		reconciledTo: prometheus.NewDesc("svc_reconciliation_compared_timestamp_seconds",
			"Service time up to which ledger and rail have been compared; 0 before the first comparison.", nil, nil),
		reconcileLag: prometheus.NewDesc("svc_reconciliation_lag_seconds",
			"Age of svc_reconciliation_compared_timestamp_seconds; 7 days before the first comparison.", nil, nil),
		inFlight: prometheus.NewDesc("svc_reconciliation_in_flight",
			"Debits without a ledger entry whose row or payment is open; "+counted, nil, nil),
		auditAge: prometheus.NewDesc("svc_audit_pass_age_seconds",
			"Time since the recurring audit ended its last whole pass.", nil, nil),
		failing: prometheus.NewDesc("svc_webhook_endpoints_failing",
			"Enabled webhook endpoints whose last three attempts failed; "+counted, nil, nil),
		transaction: prometheus.NewDesc("svc_postgres_oldest_transaction_seconds",
			"Age of the oldest open transaction of any client of the server.", nil, nil),
		standbys: prometheus.NewDesc("svc_postgres_standbys", "Connected standbys.", nil, nil),
		replication: prometheus.NewDesc("svc_postgres_replication_lag_bytes",
			"WAL that the slowest connected standby has not replayed; missing without the right to see it.", nil, nil),
		recurring: prometheus.NewDesc("svc_recurring_oldest_seconds",
			"Time since the oldest unfinished recurring task was due, dispatched or not.", nil, nil),
		wraparound: prometheus.NewDesc("svc_postgres_wraparound_ratio",
			"Used share of the transaction ids before wraparound.", nil, nil),
		archiveFailing: prometheus.NewDesc("svc_postgres_archive_failing",
			"1 if the last attempt to archive WAL failed, else 0.", nil, nil),
		pauses: prometheus.NewDesc("svc_pauses",
			"Pauses in force by operators: of organisations' debits, or of a queue.", []string{"of", "queue"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.oldestBatch
	out <- c.endpoints
	out <- c.events
	out <- c.openAlerts
	out <- c.reconciledTo
	out <- c.reconcileLag
	out <- c.inFlight
	out <- c.auditAge
	out <- c.failing
	out <- c.transaction
	out <- c.standbys
	out <- c.replication
	out <- c.recurring
	out <- c.wraparound
	out <- c.archiveFailing
	out <- c.pauses
}

// Collect implements prometheus.Collector. Without Postgres it sends nothing, rather than zeros.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queue.ScrapeTimeout)
	defer cancel()
	f, err := c.store.Figures(ctx)
	var r models.Reconciliation
	if err == nil {
		r, err = c.store.Reconciliation(ctx)
	}
	var a models.AuditPass
	if err == nil {
		a, err = c.store.AuditPass(ctx)
	}
	var h models.Health
	if err == nil {
		h, err = c.store.Health(ctx)
	}
	var pauses []models.Pause
	if err == nil {
		pauses, err = c.store.Pauses(ctx)
	}
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the state metrics", logs.Outage(err), "error", err)
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(c.oldestBatch, f.OldestOpenBatch.Duration().Seconds())
	gauge(c.endpoints, float64(f.ParkedEndpoints))
	gauge(c.events, float64(f.ParkedEvents))
	for kind, n := range f.OpenAlerts {
		gauge(c.openAlerts, float64(n), kind)
	}
	gauge(c.reconciledTo, r.ComparedTo.Sub(0).Seconds())
	gauge(c.reconcileLag, r.Lag().Seconds())
	gauge(c.inFlight, float64(r.InFlight))
	gauge(c.auditAge, a.Age().Seconds())
	gauge(c.failing, float64(h.FailingEndpoints))
	gauge(c.transaction, h.OldestTransaction.Duration().Seconds())
	gauge(c.standbys, float64(h.Standbys))
	if h.ReplicationLag >= 0 {
		gauge(c.replication, float64(h.ReplicationLag))
	}
	gauge(c.recurring, h.OldestRecurring.Duration().Seconds())
	gauge(c.wraparound, h.Wraparound)
	archiveFailing := 0.0
	if h.ArchiveFailing {
		archiveFailing = 1
	}
	gauge(c.archiveFailing, archiveFailing)
	queues := map[models.Queue]int{}
	for _, p := range pauses {
		queues[p.Queue]++ // "": a pause of an organisation's debits
	}
	gauge(c.pauses, float64(queues[""]), "debits", "")
	for _, q := range models.PausableQueues {
		gauge(c.pauses, float64(queues[q]), "queue", string(q))
	}
}
