package models_test

import (
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// finishedWork writes and deletes slots and retries of a Site, whose leases have ended. Each
// statement is a transaction of its own.
var finishedWork = []string{`
INSERT INTO webhook_slots (organisation_id, event_id, endpoint_site_id, site_id, requested_at, task_id, until, token,
                           number, url)
SELECT ?0, gen_random_uuid(), ?1, ?1, 1, gen_random_uuid(), now() - interval '1 s', gen_random_uuid(), 1, 'u'
FROM generate_series(1, 5000)`, `
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at, dispatched_at,
                    redispatch_after)
SELECT gen_random_uuid(), 'deliverWebhook', 'webhooks', ?0, ?1, gen_random_uuid(), 1, now(), now() + lease
FROM generate_series(1, 5000), unnest('{1 h,-1 h}'::interval[]) AS lease`,
	"DELETE FROM webhook_slots", "DELETE FROM outbox",
}

// Statements about work in flight do not read the work that was finished while a transaction keeps
// its snapshot, although vacuum cannot remove it.
func TestFinishedWorkUnderALongReader(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	reader, err := store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = reader.Rollback() }()
	_, err = reader.ExecContext(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM sites")
	must(t, err)
	for _, query := range finishedWork {
		_, err := store.DB().ExecContext(t.Context(), query, site.OrganisationID, site.ID)
		must(t, err)
	}
	plans, err := models.ExplainUnderReader(t.Context(), store, site)
	must(t, err)
	for name, plan := range plans {
		if blocks := plan.Blocks(); blocks > 50 {
			t.Errorf("%s: %d blocks\n%s", name, blocks, plan.JSON)
		}
	}
}
