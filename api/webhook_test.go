package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"partnerbilling/api"
	"partnerbilling/jobs"
	"partnerbilling/models"
)

// hooks is the real API with a partner's webhook receiver.
type hooks struct {
	*billing
	t        *testing.T
	job      *jobs.DeliverWebhook
	receiver *httptest.Server
	got      chan *http.Request // with their bodies buffered
	owner    models.OrganisationID
}

func newHooks(t *testing.T, change func(*api.Config)) *hooks {
	t.Parallel()
	h := &hooks{t: t, got: make(chan *http.Request, 100)}
	h.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h.got <- r
		switch r.URL.Path {
		case "/fails":
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte("no \x00 coffee \xff"))
		case "/slow":
			<-time.After(200 * time.Millisecond)
		}
	}))
	t.Cleanup(h.receiver.Close)
	h.billing = newBilling(t, func(cfg *api.Config) {
		h.job = jobs.NewDeliverWebhook(jobs.Config{
			Store: cfg.Store, Keyring: cfg.Keys.Keyring(),
			WebhookTargets: models.WebhookTargets{Sandbox: true, Loopback: true}, Log: slog.New(slog.DiscardHandler),
		})
		cfg.Webhooks = h.job
		if change != nil {
			change(cfg)
		}
	})
	t.Cleanup(func() { h.job.Sender.Close() })
	site, err := h.store.Sites(t.Context(), h.organisationOf(h.site))
	if err != nil {
		t.Fatal(err)
	}
	h.owner = site[0].OrganisationID
	return h
}

// receive returns the next request that the partner's receiver got.
func (h *hooks) receive() *http.Request {
	h.t.Helper()
	select {
	case r := <-h.got:
		return r
	case <-time.After(10 * time.Second):
		h.t.Fatal("no webhook arrives")
		return nil
	}
}

func (h *hooks) organisationOf(site models.SiteID) (id models.OrganisationID) {
	h.t.Helper()
	if err := h.store.DB().NewRaw("SELECT organisation_id FROM sites WHERE id = ?", site).
		Scan(h.t.Context(), &id); err != nil {
		h.t.Fatal(err)
	}
	return id
}

func (h *hooks) insert() (models.WebhookEventID, models.TaskID) {
	h.t.Helper()
	paid := models.Amount(5)
	id, task, err := h.store.InsertWebhookEvent(h.t.Context(), h.owner, models.NewTraceID(),
		models.TransactionStatusPush{
			SiteID: models.PushSite{ID: h.site}, PaymentIntentID: models.NewPaymentIntentID(),
			TransactionStatus: "Settled", OrderID: "<&>\u2028", AmountPaid: &paid,
		})
	if err != nil {
		h.t.Fatal(err)
	}
	return id, task
}

type endpointData struct {
	Endpoint, URL, State, Secret              string
	Events                                    []models.WebhookEventType
	CreatedAt, UpdatedAt, DisabledAt, RetryAt models.Millis
}

func (h *hooks) put(endpoint, url string) (status int, data endpointData) {
	h.t.Helper()
	a := h.Send("PUT", "/webhooks/endpoints/"+endpoint, map[string]string{"url": url})
	if a.Status >= 300 {
		h.t.Fatalf("%d %s", a.Status, a.Body)
	}
	a.Data(&data)
	return a.Status, data
}

func TestWebhookEndpointConfiguration(t *testing.T) {
	h := newHooks(t, nil)
	site := h.site.String()
	h.Get("/webhooks/endpoints/default").Refused(404, "webhooks:endpoint-not-found")
	h.Get("/webhooks/endpoints/"+site).Refused(404, "webhooks:endpoint-not-found siteId")
	h.Post("/webhooks/secret/rotation", nil).Refused(404, "webhooks:secret-not-found")

	status, first := h.put("default", h.receiver.URL+"/a")
	if status != 201 || !strings.HasPrefix(first.Secret, "whsec_") || first.Endpoint != "default" ||
		first.State != "active" {
		t.Errorf("first: %d %+v", status, first)
	}
	status, second := h.put(site, h.receiver.URL+"/b")
	if status != 200 || second.Secret != "" || second.Endpoint != site {
		t.Errorf("second: %d %+v", status, second)
	}
	h.advance(t, time.Second)
	_, changed := h.put(site, h.receiver.URL+"/c")
	var got endpointData
	h.Get("/webhooks/endpoints/" + site).Expect(200).Data(&got)
	want := endpointData{
		Endpoint: site, URL: h.receiver.URL + "/c", State: "active",
		Events: []models.WebhookEventType{models.EventTransactionStatus}, CreatedAt: noon, UpdatedAt: noon + 1000,
	}
	if diff := cmp.Diff([]endpointData{want, want}, []endpointData{got, changed}); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	h.Send("DELETE", "/webhooks/endpoints/"+site, nil).Expect(200)
	h.Send("DELETE", "/webhooks/endpoints/"+site, nil).Refused(404, "webhooks:endpoint-not-found siteId")
	if len(h.got) != 0 {
		t.Error("configuration sends something")
	}
	h.other.Get("/webhooks/endpoints/default").Refused(404, "webhooks:endpoint-not-found")
	h.Get("/webhooks/endpoints/"+h.otherSite.String()).Refused(403, "sites:site-not-accessible siteId")
	h.Send("PUT", "/webhooks/endpoints/Default", `{"url":"https://example.com"}`).
		Refused(403, "sites:site-not-accessible siteId")
	h.app.Get("/webhooks/endpoints/default").Refused(403, "auth:insufficient-scope")
}

func TestWebhookURLsAreChecked(t *testing.T) {
	h := newHooks(t, nil)
	production := newHooksProduction(t)
	for body, want := range map[string]string{
		`{}`:                                      "webhooks:missing-field url",
		`{"url":null}`:                            "webhooks:missing-field url",
		`{"url":5}`:                               "webhooks:invalid-field url",
		`{"url":"ftp://example.com"}`:             "webhooks:invalid-field url",
		`{"url":"http://10.0.0.1/"}`:              "webhooks:invalid-field url",
		`{"url":"http://[::ffff:10.0.0.1]/"}`:     "webhooks:invalid-field url",
		`{"url":"https://u:p@example.com/"}`:      "webhooks:invalid-field url",
		`{"url":"http://169.254.169.254/latest"}`: "webhooks:invalid-field url",
	} {
		h.Send("PUT", "/webhooks/endpoints/default", body).Refused(400, want)
	}
	h.put("default", "http://127.0.0.1:9999/")
	h.put("default", "http://localhost:9999/")
	remote := newBilling(t, func(cfg *api.Config) { cfg.Sandbox = &api.Sandbox{} })
	for _, url := range []string{"http://127.0.0.1:9999/", "https://[::1]/", "http://localhost:9999/",
		"https://metadata.google.internal/x", "https://redis/", "http://printer.local/"} {
		a := remote.Send("PUT", "/webhooks/endpoints/default", map[string]any{"url": url}).
			Refused(400, "webhooks:invalid-field url")
		if m := a.Faults()[0].Message; m != "url must not point to a private, local or reserved address or name" {
			t.Errorf("%s: %s", url, m)
		}
	}
	remote.Send("PUT", "/webhooks/endpoints/default", `{"url":"http://example.com/"}`).Expect(201)
	production.Send("PUT", "/webhooks/endpoints/default", `{"url":"http://example.com/"}`).
		Refused(400, "webhooks:invalid-field url")
	production.Send("PUT", "/webhooks/endpoints/default", `{"url":"https://127.0.0.1/"}`).
		Refused(400, "webhooks:invalid-field url")
	production.Send("PUT", "/webhooks/endpoints/default", `{"url":"https://example.com/"}`).Expect(201)
}

func newHooksProduction(t *testing.T) *billing {
	return newBilling(t, func(cfg *api.Config) { cfg.Sandbox = nil })
}

func TestWebhookTests(t *testing.T) {
	h := newHooks(t, nil)
	h.Post("/webhooks/endpoints/default/test", nil).Refused(404, "webhooks:endpoint-not-found")
	_, endpoint := h.put("default", h.receiver.URL+"/ok")
	h.put(h.site.String(), h.receiver.URL+"/fails")
	var good, bad attemptData
	h.Post("/webhooks/endpoints/default/test", nil).Expect(200).Data(&good)
	r := h.receive()
	body, _ := io.ReadAll(r.Body)
	wh, err := standardwebhooks.NewWebhook(endpoint.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := wh.Verify(body, r.Header); err != nil || r.Header.Get("webhook-id") != good.IdempotencyKey ||
		r.Header.Get("svc-webhook-test") != "true" || r.Header.Get("svc-event-type") != "transactionStatus" ||
		!strings.Contains(string(body), `"idempotencyKey":"`+good.IdempotencyKey+`"`) ||
		!strings.HasSuffix(string(body), `","test":true}`) {
		t.Errorf("%v: %v %s", err, r.Header, body)
	}
	asDescribed(t, models.EventTransactionStatus, body)
	if good.Status != "delivered" || good.StatusCode != http.StatusOK || good.Number != 1 ||
		good.URL != h.receiver.URL+"/ok" || good.Error != "" ||
		good.Address != strings.TrimPrefix(h.receiver.URL, "http://") || good.StartedAt != noon {
		t.Errorf("good: %+v", good)
	}
	h.Post("/webhooks/endpoints/"+h.site.String()+"/test", nil).Expect(200).Data(&bad)
	if bad.Status != "failed" || bad.StatusCode != http.StatusTeapot || bad.Error != "answered 418" ||
		!strings.HasSuffix(bad.ResponseHead, "no \uFFFD coffee \uFFFD") {
		t.Errorf("bad: %+v", bad)
	}
	var list struct {
		TotalItems int
		Items      []map[string]any
	}
	h.Get("/webhooks/events").Expect(200).Data(&list)
	if list.TotalItems != 2 || list.Items[0]["test"] != true {
		t.Errorf("events: %+v", list)
	}
}

// overtaken is a deliverer that first lets something else happen to the task.
type overtaken struct {
	api.WebhookDeliverer
	first func(models.OrganisationID, models.TaskID)
}

func (o overtaken) Deliver(
	ctx context.Context, organisation models.OrganisationID, task models.TaskID,
) (models.WebhookAttempt, error) {
	o.first(organisation, task)
	return o.WebhookDeliverer.Deliver(ctx, organisation, task)
}

// If a worker has taken the task of a test, the partner gets the attempt that the worker makes.
func TestWebhookTestByAWorker(t *testing.T) {
	var h *hooks
	var worker sync.WaitGroup
	h = newHooks(t, func(cfg *api.Config) {
		job := cfg.Webhooks
		cfg.Webhooks = overtaken{job, func(organisation models.OrganisationID, task models.TaskID) {
			worker.Go(func() {
				if _, err := job.Deliver(context.Background(), organisation, task); err != nil {
					t.Errorf("the worker: %v", err)
				}
			})
			select {
			case <-h.got: // the worker is sending
			case <-time.After(10 * time.Second):
			}
		}}
	})
	t.Cleanup(worker.Wait)
	h.put("default", h.receiver.URL+"/slow")
	var tested attemptData
	h.Post("/webhooks/endpoints/default/test", nil).Expect(200).Data(&tested)
	if tested.Status != "delivered" || tested.StatusCode != http.StatusOK || tested.Number != 1 ||
		tested.URL != h.receiver.URL+"/slow" {
		t.Errorf("tested: %+v", tested)
	}
	if n := len(h.got); n != 0 {
		t.Errorf("the event was sent %d more times", n)
	}
}

// A test whose endpoint is removed before the attempt has no attempt to show.
func TestWebhookTestOfARemovedEndpoint(t *testing.T) {
	h := newHooks(t, func(cfg *api.Config) {
		store := cfg.Store
		cfg.Webhooks = overtaken{cfg.Webhooks, func(organisation models.OrganisationID, _ models.TaskID) {
			if err := store.DeleteWebhookEndpoint(context.Background(), organisation, models.SiteID{}); err != nil {
				t.Errorf("the removal: %v", err)
			}
		}}
	})
	h.put("default", h.receiver.URL+"/ok")
	h.Post("/webhooks/endpoints/default/test", nil).Refused(404, "webhooks:endpoint-not-found")
}

func TestWebhookSecretRotation(t *testing.T) {
	h := newHooks(t, nil)
	_, endpoint := h.put("default", h.receiver.URL+"/ok")
	var rotation struct {
		Secret                string
		ActivateAt, OverlapTo models.Millis
	}
	h.Post("/webhooks/secret/rotation", nil).Expect(200).Data(&rotation)
	if rotation.ActivateAt != noon.Add(24*time.Hour) || rotation.OverlapTo != noon.Add(48*time.Hour) ||
		rotation.Secret == endpoint.Secret {
		t.Errorf("%+v", rotation)
	}
	h.Post("/webhooks/secret/rotation", map[string]any{"activateAt": noon}).Expect(200).Data(&rotation)
	if rotation.ActivateAt != noon {
		t.Errorf("%+v", rotation)
	}
	h.Post("/webhooks/secret/rotation", map[string]any{"activateAt": noon.Add(31 * 24 * time.Hour)}).
		Refused(400, "webhooks:invalid-field activateAt")
	h.Post("/webhooks/secret/rotation", `{"activateAt":-1}`).Expect(200)
	h.Post("/webhooks/secret/rotation", `{"activateAt":"soon"}`).Refused(400, "webhooks:invalid-field activateAt")
}
