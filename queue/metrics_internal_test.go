package queue

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/models"
)

// partnerCollector sends the gauges of given backlogs.
type partnerCollector struct {
	*backlogCollector
	backlogs []models.PartnerBacklog
}

func (c partnerCollector) Describe(out chan<- *prometheus.Desc) { out <- c.partner }

func (c partnerCollector) Collect(out chan<- prometheus.Metric) { c.collectPartners(out, c.backlogs) }

// The number of gauges is bounded: the organisations that have waited longest have one each, all
// others share one.
func TestGaugesOfPartnersAreBounded(t *testing.T) {
	t.Parallel()
	var backlogs []models.PartnerBacklog
	want := map[string]float64{"checkout other": 0, "webhooks other": 0}
	for i := range 3 * watchedPartners {
		id, seconds := models.OrganisationID(uuid.New()), 100-i
		backlogs = append(backlogs, models.PartnerBacklog{
			Queue: models.QueueDebits, OrganisationID: id, OldestDue: models.Age(1000 * seconds),
		})
		switch {
		case i < watchedPartners:
			want["debits "+id.String()] = float64(seconds)
		case i == watchedPartners:
			want["debits other"] = float64(seconds)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(partnerCollector{&backlogCollector{partner: prometheus.NewDesc(
		"svc_partner_oldest_due_seconds", "help", []string{"queue", "organisation"}, nil)}, backlogs})
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		organisation, queue := m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue() // sorted by name
		got[queue+" "+organisation] = m.GetGauge().GetValue()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gauges (-want +got):\n%s", diff)
	}
}
