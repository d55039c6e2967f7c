package jobs

import (
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// series returns the values of a registry, by name and label values. The value of a histogram is
// its count.
func series(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// Every series exists at zero before its first event.
func TestMetricsBeginAtZero(t *testing.T) {
	b := newBilling(t)
	registry := prometheus.NewRegistry()
	b.job.Metrics = NewMetrics(registry)
	for _, name := range []string{
		"svc_rows_settled_total unconfirmed", "svc_transactions_total Failed", "svc_rail_call_seconds cancel unknown",
		"svc_webhook_attempt_seconds failed",
	} {
		if n, exists := series(t, registry)[name]; !exists || n != 0 {
			t.Errorf("%s is %v, exists %v; want 0", name, n, exists)
		}
	}
	before := series(t, registry)
	b.submit("ada", "bob")
	b.rail.Script(b.key(1), railtest.Refuse(rail.InsufficientFunds))
	b.run()
	after := series(t, registry)
	for name, want := range map[string]float64{
		"svc_rows_settled_total succeeded": 1, "svc_rows_settled_total insufficientFunds": 1,
		"svc_rail_call_seconds debit succeeded": 1, "svc_rail_call_seconds debit refused": 1,
	} {
		if after[name] != want {
			t.Errorf("%s is %v, want %v", name, after[name], want)
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d series before anything happened, %d after", len(before), len(after))
	}
}

func TestStateMetricsAreScraped(t *testing.T) {
	t.Parallel()
	store, registry := modelstest.Open(t), prometheus.NewRegistry()
	RegisterStateMetrics(registry, store, slog.New(slog.DiscardHandler))
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, noon)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "batch", "someone"))
	if _, err := store.ClaimChunk(t.Context(), done.Tasks[0], models.NewLeaseToken(),
		models.Part{Rows: 1}); err != nil {
		t.Fatal(err)
	}
	modelstest.SetClock(t, store, noon+models.Millis(models.SettleWithin.Milliseconds()))
	if _, err := store.CloseOverdueBatch(t.Context()); err != nil {
		t.Fatal(err)
	}
	modelstest.Submit(t, store, modelstest.Batch(site, "another", "someone"))
	modelstest.SetClock(t, store, noon+models.Millis(models.SettleWithin.Milliseconds())+1500)
	got := series(t, registry)
	for name, want := range map[string]float64{
		"svc_alerts_open rowsUnconfirmed": 1, "svc_alerts_open lateTruth": 0, "svc_batch_oldest_open_seconds": 1.5,
		"svc_webhook_endpoints_parked": 0, "svc_webhook_events_parked": 0,
	} {
		if n, exists := got[name]; !exists || n != want {
			t.Errorf("%s is %v, exists %v; want %v", name, n, exists, want)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if got := series(t, registry); len(got) != 0 {
		t.Errorf("gauges without Postgres: %v", got)
	}
}

// svc_pauses counts the organisations whose debits are paused, and says of each queue whether it is
// paused.
func TestPausesAreMetered(t *testing.T) {
	b := newBilling(t)
	b.pause()
	for _, q := range []models.Queue{models.QueueDebits, models.QueueWebhooks} {
		if err := b.store.PauseQueue(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	RegisterStateMetrics(registry, b.store, slog.New(slog.DiscardHandler))
	got := series(t, registry)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "svc_pauses ") })
	want := map[string]float64{
		"svc_pauses debits ": 1, "svc_pauses queue debits": 1, "svc_pauses queue webhooks": 1,
		"svc_pauses queue checkout": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
