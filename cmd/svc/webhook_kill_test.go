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
	"partnerbilling/queue/queuetest"
)

// A worker is killed after a partner has received its POST and before it could write that down: another worker sends the
// same bytes under the same key.
func TestWorkerKilledAfterAWebhook(t *testing.T) {
	t.Parallel()
	dsn, master := modelstest.DSN(t), models.GenerateMasterKey()
	env := map[string]string{
		"SVC_ENV": "sandbox", "SVC_DATABASE_URL": dsn, "SVC_REDIS_URL": queuetest.Start(t).URL, "SVC_MASTER_KEY": master, "SVC_WEBHOOK_LOOPBACK": "on",
		"SVC_LOG_LEVEL": "WARN",
	}
	store, err := models.Open(t.Context(), models.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()

	type request struct{ key, attempt, body string }
	got := make(chan request, 10)
	hold := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header.Get("webhook-id"), r.Header.Get("svc-webhook-attempt"), string(body)}
		if r.Header.Get("svc-webhook-attempt") == "1" {
			<-hold // the worker never sees the answer
		}
	}))
	defer receiver.Close()
	defer close(hold)
	await := func() request {
		t.Helper()
		select {
		case r := <-got:
			return r
		case <-time.After(patience):
			t.Fatal("nothing was sent")
			return request{}
		}
	}

	site := modelstest.Site(t, store)
	id := insertWebhook(t, store, master, site, receiver.URL)
	worker := startSvc(t, env, "worker")
	first := await()
	worker.kill()
	for _, query := range []string{ // time goes by, until the leases run out
		"UPDATE webhook_slots SET until = clock_timestamp() WHERE token IS NOT NULL", "UPDATE outbox SET redispatch_after = clock_timestamp() WHERE dispatched_at IS NOT NULL",
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !delivered() {
		if ctx.Err() != nil {
			t.Fatal("the event is never delivered")
		}
	}
}

func insertWebhook(t *testing.T, store *models.Store, master string, site models.Site, url string) models.WebhookEventID {
	t.Helper()
	ring, err := models.ParseKeyring(master)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.PutWebhookEndpoint(t.Context(), ring, site.OrganisationID, models.SiteID{}, url); err != nil {
		t.Fatal(err)
	}
	id, _, err := store.InsertWebhookEvent(t.Context(), site.OrganisationID, models.NewTraceID(), models.TransactionStatusPush{
		SiteID: models.PushSite{ID: site.ID}, PaymentIntentID: models.NewPaymentIntentID(), TransactionStatus: "Expired",
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
