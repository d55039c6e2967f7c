package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
	"partnerbilling/queue/queuetest"
)

// A worker is killed after a partner has received a webhook and before the worker records it.
// Another worker sends the same bytes under the same key.
func TestWorkerKilledAfterWebhook(t *testing.T) {
	t.Parallel()
	dsn, master := modelstest.DSN(t), modelstest.MasterKey
	env := map[string]string{
		"SVC_ENV": "sandbox", "SVC_DATABASE_URL": dsn, "SVC_REDIS_URL": queuetest.Start(t).URL,
		"SVC_MASTER_KEY": master, "SVC_WEBHOOK_LOOPBACK": "on", "SVC_LOG_LEVEL": "WARN",
	}
	store, err := models.Open(postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	defer store.Close()

	type request struct{ key, attempt, body string }
	got := make(chan request, 10)
	hold := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header.Get("webhook-id"), r.Header.Get("svc-webhook-attempt"), string(body)}
		if r.Header.Get("svc-webhook-attempt") == "1" {
			<-hold // the worker never receives the response
		}
	}))
	defer receiver.Close()
	defer close(hold)
	await := func() request {
		t.Helper()
		select {
		case r := <-got:
			return r
		case <-time.After(awaitTimeout):
			t.Fatal("timed out waiting for a webhook")
			return request{}
		}
	}

	site := modelstest.Site(t, store)
	id := insertWebhook(t, store, master, site, receiver.URL)
	worker := startSvc(t, env, "worker")
	first := await()
	worker.kill()
	for _, query := range []string{ // end the leases
		"UPDATE webhook_slots SET until = clock_timestamp() WHERE token IS NOT NULL",
		"UPDATE outbox SET redispatch_after = clock_timestamp() WHERE dispatched_at IS NOT NULL",
	} {
		if _, err := store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	startSvc(t, env, "worker")
	second := await()
	if second.key != first.key || second.body != first.body || first.key != id.String() || second.attempt != "2" {
		t.Errorf("first %+v, then %+v", first, second)
	}
	delivered := func() bool {
		event, _, err := store.WebhookEvent(t.Context(), site.OrganisationID, id)
		return err == nil && event.Status == models.WebhookDelivered && string(event.Body) == first.body
	}
	ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
	defer cancel()
	for !delivered() {
		if ctx.Err() != nil {
			t.Fatal("timed out waiting for the delivery")
		}
	}
}

func insertWebhook(
	t *testing.T, store *models.Store, master string, site models.Site, url string,
) models.WebhookEventID {
	t.Helper()
	ring, err := seal.ParseKeyring(master)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.PutWebhookEndpoint(t.Context(), ring, site.OrganisationID, models.SiteID{}, url); err != nil {
		t.Fatal(err)
	}
	push := models.TransactionStatusPush{
		SiteID: models.PushSite{ID: site.ID}, PaymentIntentID: models.NewPaymentIntentID(),
		TransactionStatus: "Expired",
	}
	id, _, err := store.InsertWebhookEvent(t.Context(), site.OrganisationID, models.NewTraceID(), push)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
