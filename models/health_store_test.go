package models_test

import (
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	health := func() models.Health {
		t.Helper()
		h, err := store.Health(t.Context())
		must(t, err)
		return h
	}
	if h := health(); h.FailingEndpoints != 0 || h.ReplicationLag != 0 || h.Wraparound <= 0 || h.Wraparound > 0.1 {
		t.Errorf("health %+v", h)
	}
	if _, err := store.StartRecurring(t.Context(), models.TaskCloseBatches, time.Second); err != nil {
		t.Fatal(err)
	}
	_, err := store.DB().ExecContext(t.Context(), "UPDATE outbox SET available_at = available_at - 5000")
	must(t, err)
	if h := health(); h.OldestRecurring < 5000 || h.OldestRecurring > 60_000 {
		t.Errorf("health beside a recurring task that was due 5 s ago: %+v", h)
	}
	_, _, err = store.PutWebhookEndpoint(t.Context(), modelstest.Keyring(t, modelstest.MasterKey), site.OrganisationID,
		models.SiteID{}, "https://partner.example")
	must(t, err)
	tx, err := store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	// The transaction is old once its server has waited. Its failures are seen after its commit.
	_, err = tx.ExecContext(t.Context(), "UPDATE webhook_endpoints SET failures = ?", models.FailingEndpoint)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT pg_sleep(0.2)")
	must(t, err)
	if h := health(); h.OldestTransaction < 200 || h.FailingEndpoints != 0 {
		t.Errorf("health beside a transaction of 200 ms: %+v", h)
	}
	must(t, tx.Commit())
	if h := health(); h.FailingEndpoints != 1 {
		t.Errorf("health beside a failing endpoint: %+v", h)
	}
}
