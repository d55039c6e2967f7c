package migrations_test

import (
	"testing"

	"partnerbilling/migrations"
	"partnerbilling/models/modelstest"
)

// Events that wait for their endpoint have their places there after the migration, and ask for their turn after it is taken back.
func TestPlacesOfEventsThatAreParked(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	takeBack(t, store, "0018_webhook_places")
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := store.DB().ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`
WITH e AS (
    INSERT INTO webhook_events (organisation_id, id, site_id, payment_intent_id, transaction_status, status, created_at, requested_at,
        next_attempt_at, is_parked, endpoint_site_id, task_id, trace_id, body)
    SELECT ?0, gen_random_uuid(), ?1, gen_random_uuid(), 'Settled', 'pending', n, n, n, n > 2, ?1, gen_random_uuid(), '', '{}'
    FROM generate_series(1, 5) n RETURNING *
)
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at)
SELECT task_id, 'deliverWebhook', 'webhooks', organisation_id, site_id, id, svc_now() + 3600000 FROM e`, site.OrganisationID, site.ID)
	if n, err := migrations.Up(t.Context(), store.DB()); n != 1 || err != nil {
		t.Fatalf("applied %d, %v", n, err)
	}
	count := func(query string, want int) {
		t.Helper()
		var n int
		if err := store.DB().NewRaw(query).Scan(t.Context(), &n); err != nil || n != want {
			t.Errorf("%d instead of %d, %v: %s", n, want, err, query)
		}
	}
	count(`SELECT count(*) FROM webhook_places p JOIN webhook_events e ON e.id = p.event_id AND e.task_id = p.task_id
		AND e.requested_at = p.requested_at AND e.endpoint_site_id = p.endpoint_site_id AND e.site_id = p.site_id WHERE p.until IS NULL`, 3)
	count("SELECT count(*) FROM webhook_places", 3)
	count("SELECT count(*) FROM webhook_events WHERE is_parked", 0)
	takeBack(t, store, "0018_webhook_places")
	count("SELECT count(*) FROM outbox WHERE available_at <= svc_now()", 3)
}
