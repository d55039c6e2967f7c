package api

import (
	"context"
	"errors"
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/models/postgres"
)

// replicaCollector collects the metrics of the replica. At each scrape it compares the replica with
// the primary.
type replicaCollector struct {
	store                          *models.Store
	log                            *slog.Logger
	usable, lag, served, fallbacks *prometheus.Desc
}

// RegisterReplica registers the metrics of the store's replica. If reads cannot use the replica,
// each scrape logs the reason.
func RegisterReplica(reg prometheus.Registerer, store *models.Store, log *slog.Logger) {
	reg.MustRegister(&replicaCollector{
		store: store, log: log,
		usable: prometheus.NewDesc("svc_database_replica_usable",
			"1 if pages and CSV can read from the replica, 0 if the primary serves them.", nil, nil),
		lag: prometheus.NewDesc("svc_database_replica_lag_seconds",
			"Age of the last commit that the replica has replayed; 0 if it has replayed all, NaN without an answer.",
			nil, nil),
		served: prometheus.NewDesc("svc_database_replica_reads_total",
			"Reads that the replica has answered.", nil, nil),
		fallbacks: prometheus.NewDesc("svc_database_replica_fallbacks_total",
			"Times that the reads of a page or table turned from the replica to the primary, by reason.",
			[]string{"reason"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (c *replicaCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.usable
	out <- c.lag
	out <- c.served
	out <- c.fallbacks
}

// Collect implements prometheus.Collector. It sends nothing if the primary does not answer.
func (c *replicaCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	state := c.store.ReplicaState(ctx)
	if errors.Is(state.Err, postgres.ErrNoPosition) {
		c.log.WarnContext(ctx, "cannot compare the replica with the primary", logs.Outage(state.Err),
			"error", state.Err)
		return
	}
	usable, lag := 1.0, state.Lag.Seconds()
	if state.Err != nil {
		usable = 0
		c.log.WarnContext(ctx, "the replica is not usable", logs.OutageOf(logs.Replica), "error", state.Err)
	}
	if state.Lag < 0 {
		lag = math.NaN()
	}
	out <- prometheus.MustNewConstMetric(c.usable, prometheus.GaugeValue, usable)
	out <- prometheus.MustNewConstMetric(c.lag, prometheus.GaugeValue, lag)
	out <- prometheus.MustNewConstMetric(c.served, prometheus.CounterValue, float64(state.Served))
	for reason, n := range state.Fallbacks {
		out <- prometheus.MustNewConstMetric(c.fallbacks, prometheus.CounterValue, float64(n), string(reason))
	}
}
