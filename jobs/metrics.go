package jobs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// Metrics holds the metrics of the jobs. A nil *Metrics records nothing.
type Metrics struct {
	rowsSettled  *prometheus.CounterVec
	transactions *prometheus.CounterVec
	railCalls    *prometheus.HistogramVec
	webhooks     *prometheus.HistogramVec
	reconciled   *prometheus.CounterVec
	answers      railAnswers // for ReportRail
}

// NewMetrics returns the metrics of the jobs, registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		rowsSettled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svc_rows_settled_total",
			Help: "Rows that debit tasks settled or corrected, by outcome. Not counted: rows that a cancellation, " +
				"the closing of an overdue batch or an operator's decision settled or corrected.",
		}, []string{"outcome"}),
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svc_transactions_total",
			Help: "Checkout transactions that payment tasks ended, by status. Not counted: transactions that an " +
				"operator's decision ended, and payment intents without a transaction.",
		}, []string{"status"}),
		railCalls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "svc_rail_call_seconds",
			Help:    "Time from a rail call to the answer for one row, by call and status of the answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"call", "status"}),
		webhooks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "svc_webhook_attempt_seconds",
			Help:    "Duration of webhook attempts, by the status of the event afterwards.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"verdict"}),
		reconciled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "svc_reconciliation_compared_total",
			Help: "Debits of the rail's list, and entries of the ledger, that were compared, by side.",
		}, []string{"side"}),
	}
	m.initSeries()
	reg.MustRegister(m.rowsSettled, m.transactions, m.railCalls, m.webhooks, m.reconciled)
	return m
}

// The values of the label "side" of svc_reconciliation_compared_total.
const (
	sideRail   = "rail"
	sideLedger = "ledger"
)

// initSeries creates every series at zero. A series that began with its first event would hide that
// event from rate().
func (m *Metrics) initSeries() {
	for _, outcome := range models.RowOutcomes {
		m.rowsSettled.WithLabelValues(string(outcome))
	}
	for _, status := range models.TransactionStatuses {
		if models.IntentPending.CanEndAs(status) {
			m.transactions.WithLabelValues(string(status))
		}
	}
	for _, call := range []railCall{callDebit, callLookup, callCancel} {
		for status := range rail.Status(rail.StatusCount) {
			m.railCalls.WithLabelValues(call.String(), status.String())
		}
	}
	for _, verdict := range []models.WebhookStatus{
		models.WebhookDelivered, models.WebhookPending, models.WebhookFailed,
	} {
		m.webhooks.WithLabelValues(string(verdict))
	}
	m.compared(0, 0)
}

// compared counts compared debits of the rail's list, and compared entries of the ledger.
func (m *Metrics) compared(debits, entries int) {
	if m != nil {
		m.reconciled.WithLabelValues(sideRail).Add(float64(debits))
		m.reconciled.WithLabelValues(sideLedger).Add(float64(entries))
	}
}

func (m *Metrics) rowSettled(outcome models.RowOutcome) {
	if m != nil {
		m.rowsSettled.WithLabelValues(string(outcome)).Inc()
	}
}

func (m *Metrics) transactionEnded(status models.TransactionStatus) {
	if m != nil {
		m.transactions.WithLabelValues(string(status)).Inc()
	}
}

// railCall counts the rail's answer about one row, and the time that it took.
func (m *Metrics) railCall(call railCall, status rail.Status, took time.Duration) {
	if m != nil {
		m.railCalls.WithLabelValues(call.String(), status.String()).Observe(took.Seconds())
		m.answers.add(call, status)
	}
}

func (m *Metrics) webhook(verdict models.WebhookStatus, took time.Duration) {
	if m != nil {
		m.webhooks.WithLabelValues(string(verdict)).Observe(took.Seconds())
	}
}
