package models_test

import (
	"testing"

	"partnerbilling/models"
)

// park inserts n events of a Site that are parked for an endpoint.
func (w *webhooks) park(n int, site, endpoint models.SiteID) {
	w.t.Helper()
	if _, err := w.DB().ExecContext(w.t.Context(), `
WITH e AS (
    INSERT INTO webhook_events (organisation_id, id, site_id, type, payment_intent_id, transaction_status, status,
        created_at,
        requested_at, next_attempt_at, task_id, trace_id, body)
    SELECT ?0, intent.id, ?1, 'transactionStatus', intent.id, 'Settled', 'pending', n, n, n,
        gen_random_uuid(), '', '{}'
    FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, ?3) n) AS intent RETURNING *
), p AS (
    INSERT INTO webhook_slots (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id)
    SELECT organisation_id, id, ?2, site_id, requested_at, task_id FROM e
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at)
SELECT task_id, 'deliverWebhook', 'webhooks', organisation_id, site_id, id, svc_now() + 3600000 FROM e`,
		w.site.OrganisationID, site, endpoint, n); err != nil {
		w.t.Fatal(err)
	}
}

// waiting returns the number of parked events. All others must be due.
func (w *webhooks) waiting() (parked int) {
	w.t.Helper()
	var wrong int
	if err := w.DB().NewRaw(`
SELECT count(*) FILTER (WHERE p.parked), count(*) FILTER (WHERE p.parked <> (o.available_at > svc_now()))
FROM webhook_events e JOIN outbox o ON o.id = e.task_id
CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM webhook_slots x WHERE x.event_id = e.id
	AND x.until IS NULL) AS parked) p`).Scan(w.t.Context(), &parked, &wrong); err != nil || wrong > 0 {
		w.t.Fatalf("%d events are parked and due, or neither; %v", wrong, err)
	}
	return parked
}

// An endpoint that was down for long has very many parked events. A change of the endpoint does not
// wait for all of them.
func TestEndpointOfVeryManyParkedEvents(t *testing.T) {
	t.Parallel()
	const many = 2500
	override := func(w *webhooks) models.SiteID { return w.site.ID }
	remove := func(w *webhooks, site models.SiteID) {
		if err := w.DeleteWebhookEndpoint(t.Context(), w.site.OrganisationID, site); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		endpoint func(*webhooks) models.SiteID // the endpoint they are parked for
		change   func(*webhooks)
		parked   int // right after the change
		sweeps   int // until none is; -1: they go as their endpoint takes them
	}{
		"put": {
			func(*webhooks) models.SiteID { return models.SiteID{} },
			func(w *webhooks) { w.put(models.SiteID{}, "https://two.example/") }, many - 1000, -1,
		},
		"put an override": {
			func(*webhooks) models.SiteID { return models.SiteID{} },
			func(w *webhooks) { w.put(w.site.ID, "https://two.example/") }, 0, 0,
		},
		"delete": {override, func(w *webhooks) { remove(w, w.site.ID) }, many - 1000, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t)
			w.put(models.SiteID{}, "https://one.example/")
			if c.endpoint(w) != (models.SiteID{}) {
				w.put(c.endpoint(w), "https://site.example/")
			}
			w.park(many, w.site.ID, c.endpoint(w))
			c.change(w)
			if n := w.waiting(); n != c.parked {
				t.Errorf("%d wait, want %d", n, c.parked)
			}
			for range max(c.sweeps, 1) {
				if _, err := w.ReleaseWebhooks(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := w.waiting(); c.sweeps >= 0 && n != 0 || c.sweeps < 0 && n >= c.parked {
				t.Errorf("%d wait after %d sweeps", n, c.sweeps)
			}
		})
	}
}
