package api_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/jobs"
	"partnerbilling/models"
)

type attemptData struct {
	Number                                      int
	Endpoint, URL, Address, Error, ResponseHead string
	StartedAt                                   models.Millis
	DurationMs                                  int64
	StatusCode                                  int
	IdempotencyKey, Status                      string // of a test
}

type eventDetail struct {
	IdempotencyKey, Type, SiteID, PaymentIntentID, TransactionStatus, Status, Body, BodySHA256 string
	Test                                                                                       bool
	AttemptCount                                                                               int
	CreatedAt, RequestedAt, NextAttemptAt, DeliveredAt                                         models.Millis
	Attempts                                                                                   []attemptData
}

type eventPage struct {
	Items              []eventDetail
	TotalItems         int
	NextHref, PrevHref string
}

func TestWebhookEventsAndRedelivery(t *testing.T) {
	var told []models.TaskID
	h := newHooks(t, func(cfg *api.Config) {
		cfg.Notify = func(tasks []models.TaskID) { told = append(told, tasks...) }
	})
	undelivered, _ := h.insert()
	h.put("default", h.receiver.URL+"/ok")
	id, task := h.insert()
	if err := h.job.Run(t.Context(), models.Task{ID: task}); err != nil {
		t.Fatal(err)
	}
	first := h.receive()
	sent, _ := io.ReadAll(first.Body)
	asDescribed(t, models.EventTransactionStatus, sent)
	if len(first.Header["Svc-Webhook-Test"]) != 0 || strings.Contains(string(sent), `"test"`) ||
		first.Header.Get("svc-event-type") != "transactionStatus" {
		t.Errorf("a real event looks like a test: %v %s", first.Header, sent)
	}
	var event eventDetail
	h.Get("/webhooks/events/" + id.String()).Expect(200).Data(&event)
	if event.Status != "delivered" || event.Body != string(sent) || len(event.Attempts) != 1 ||
		event.DeliveredAt != noon ||
		event.Attempts[0].StatusCode != http.StatusOK ||
		!strings.HasPrefix(event.Attempts[0].ResponseHead, "HTTP/1.1 200 OK\r\n") {
		t.Errorf("event %+v", event)
	}
	for _, want := range []int{2, 3} { // a redelivery may be repeated
		h.Post("/webhooks/events/"+id.String()+"/redelivery", nil).Expect(202).Data(&event)
		if err := h.job.Run(t.Context(), models.Task{ID: told[len(told)-1]}); err != nil {
			t.Fatal(err)
		}
		r := h.receive()
		again, _ := io.ReadAll(r.Body)
		if string(again) != string(sent) || r.Header.Get("webhook-id") != id.String() {
			t.Errorf("redelivered %s", again)
		}
		event = eventDetail{}
		h.Get("/webhooks/events/" + id.String()).Data(&event)
		if event.AttemptCount != want {
			t.Errorf("event %+v", event)
		}
	}
	var count struct{ Count int }
	h.Post("/webhooks/events/redelivery", map[string]any{"status": "undelivered"}).Expect(202).Data(&count)
	if count.Count != 1 {
		t.Errorf("redelivered %d", count.Count)
	}
	h.Get("/webhooks/events/" + undelivered.String()).Data(&event)
	if event.Status != "pending" {
		t.Errorf("event %+v", event)
	}

	h.Post("/webhooks/events/redelivery", `{}`).Refused(400, "webhooks:missing-field status")
	h.Post("/webhooks/events/redelivery", `{"type":"batchSettled"}`).Expect(202).Data(&count)
	if count.Count != 0 {
		t.Errorf("redelivered %d of another type", count.Count)
	}
	h.Post("/webhooks/events/redelivery", `{"from":-9007199254740991,"to":-1}`).Expect(202).Data(&count)
	if count.Count != 0 {
		t.Errorf("redelivered %d from before any data", count.Count)
	}
	h.Post("/webhooks/events/redelivery", `{"status":"x","type":"y","siteId":"y","from":"x"}`).Refused(400,
		"webhooks:invalid-field status", "webhooks:invalid-field type", "webhooks:invalid-field siteId",
		"webhooks:invalid-field from")
	h.Post("/webhooks/events/redelivery", map[string]any{"siteId": h.otherSite}).
		Refused(403, "sites:site-not-accessible siteId")
	for _, unknown := range []string{"evt_01932c07-0000-7000-8000-00000000dead", "x", "redelivery"} {
		h.Get("/webhooks/events/"+unknown).Refused(404, "webhooks:event-not-found idempotencyKey")
	}
	h.other.Get("/webhooks/events/"+id.String()).Refused(404, "webhooks:event-not-found idempotencyKey")
	h.other.Post("/webhooks/events/"+id.String()+"/redelivery", nil).
		Refused(404, "webhooks:event-not-found idempotencyKey")
}

func TestWebhookEventList(t *testing.T) {
	h := newHooks(t, nil)
	var want []string
	for range 5 {
		id, _ := h.insert()
		want = append([]string{id.String()}, want...)
		h.advance(t, time.Millisecond)
	}
	if none := dataOf[eventPage](h.Get("/webhooks/events?type=batchSettled").Expect(200)); none.TotalItems != 0 {
		t.Errorf("%d events of another type", none.TotalItems)
	}
	var got []string
	path := "/webhooks/events?limit=2&status=undelivered&type=transactionStatus&siteId=" + h.site.String()
	for path != "" {
		page := dataOf[eventPage](h.Get(path).Expect(200))
		for _, e := range page.Items {
			got = append(got, e.IdempotencyKey)
		}
		if page.TotalItems != 5 {
			t.Errorf("total %d", page.TotalItems)
		}
		path = strings.TrimPrefix(page.NextHref, publicURL)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("walk (-want +got):\n%s", diff)
	}
	for query, fault := range map[string]string{
		"status=x": "status", "type=x": "type", "type=": "type", "siteId=x": "siteId",
		"paymentIntentId=x": "paymentIntentId", "from=x": "from", "to=": "to", "limit=0": "limit", "x=1": "x",
	} {
		h.Get("/webhooks/events?"+query).Refused(400, "webhooks:invalid-parameter "+fault)
	}
	h.Get("/webhooks/events?siteId="+h.otherSite.String()).Refused(403, "sites:site-not-accessible siteId")
	h.Get("/webhooks/events?cursor=x").Refused(400, "webhooks:invalid-pagination-link nextHref")
}

// An endpoint's event types are validated one by one, shown, and replaced by every PUT.
func TestWebhookEventTypes(t *testing.T) {
	h := newHooks(t, nil)
	const invalid = "webhooks:invalid-field "
	for events, want := range map[string][]string{
		`[]`:                    {invalid + "events"},
		`["batchSettled"]`:      {invalid + "events"},
		`"batchSettled"`:        {invalid + "events"},
		`{}`:                    {invalid + "events"},
		`["Transactionstatus"]`: {invalid + "events[0]", invalid + "events"},
		`["transactionStatus","rowSettled","batchSettled",5]`:      {invalid + "events[1]", invalid + "events[3]"},
		`["transactionStatus","batchSettled","transactionStatus"]`: {invalid + "events[2]"},
		`["batchSettled","batchSettled","batchSettled","x",null,null]`: {
			invalid + "events[1]", invalid + "events[2]", invalid + "events[3]", invalid + "events[4]",
			invalid + "events[5]", invalid + "events",
		},
	} {
		h.Send("PUT", "/webhooks/endpoints/default", `{"url":"https://example.com/","events":`+events+`}`).
			Refused(400, want...)
	}
	h.Send("PUT", "/webhooks/endpoints/default", `{"url":"ftp://x","events":["x"]}`).Refused(400,
		invalid+"url", invalid+"events[0]", invalid+"events")
	type list struct{ Items []endpointData }
	var got list
	if h.Get("/webhooks/endpoints").Expect(200).Data(&got); got.Items == nil || len(got.Items) != 0 {
		t.Errorf("before any put: %+v", got)
	}
	put := func(endpoint, events string, want ...models.WebhookEventType) endpointData {
		t.Helper()
		var data endpointData
		h.Send("PUT", "/webhooks/endpoints/"+endpoint, `{"url":"https://example.com/`+endpoint+`"`+events+`}`).
			Data(&data)
		var again endpointData
		h.Get("/webhooks/endpoints/" + endpoint).Expect(200).Data(&again)
		if diff := cmp.Diff([][]models.WebhookEventType{want, want},
			[][]models.WebhookEventType{data.Events, again.Events}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", endpoint, diff)
		}
		return endpointData{Endpoint: endpoint, URL: data.URL, Events: data.Events}
	}
	all := models.WebhookEventTypes
	put("default", `,"events":["customerExpired","transactionStatus"]`, models.EventCustomerExpired,
		models.EventTransactionStatus)
	site := put(h.site.String(),
		`,"events":["transactionStatus","batchSettled","rowCorrected","customerLinked","customerRevoked","customerExpired"]`, all...)
	put("default", `,"events":null`, all[0])
	fallback := put("default", ``, all[0])
	if diff := cmp.Diff(list{[]endpointData{fallback, site}},
		dataOf[list](h.Get("/webhooks/endpoints").Expect(200))); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	h.Send("DELETE", "/webhooks/endpoints/default", nil).Expect(200)
	if diff := cmp.Diff(list{[]endpointData{site}},
		dataOf[list](h.Get("/webhooks/endpoints").Expect(200))); diff != "" {
		t.Errorf("after one was deleted (-want +got):\n%s", diff)
	}
	if others := dataOf[list](h.other.Get("/webhooks/endpoints").Expect(200)); len(others.Items) != 0 {
		t.Errorf("another organisation sees %+v", others)
	}
	h.Get("/webhooks/endpoints?limit=1").Refused(400, "webhooks:invalid-parameter limit")
	h.app.Get("/webhooks/endpoints").Refused(403, "auth:insufficient-scope")
}

// An event contains its noun with the bytes of a GET, under the traceId of the causing request.
func TestEventsContainTheirNoun(t *testing.T) {
	h := newHooks(t, nil)
	h.Send("PUT", "/webhooks/endpoints/default",
		map[string]any{"url": h.receiver.URL + "/ok", "events": models.WebhookEventTypes}).Expect(201)
	told := func(event models.WebhookEventType) (body string) {
		t.Helper()
		list := dataOf[eventPage](h.Get("/webhooks/events?type=" + string(event)).Expect(200))
		if len(list.Items) != 1 || list.Items[0].Type != string(event) || list.Items[0].PaymentIntentID != "" {
			t.Fatalf("%s: %+v", event, list)
		}
		var detail eventDetail
		h.Get("/webhooks/events/" + list.Items[0].IdempotencyKey).Expect(200).Data(&detail)
		asDescribed(t, event, []byte(detail.Body))
		return detail.Body
	}
	shows := func(event models.WebhookEventType, noun string, shown []byte, trace string) {
		t.Helper()
		data := strings.TrimPrefix(string(shown), `{"data":`)
		data = data[:strings.LastIndex(data, `,"traceId"`)]
		want := `"siteId":{"id":"` + h.site.String() + `"},"` + noun + `":` + data + `},"traceId":"` + trace + `"}`
		if body := told(event); !strings.HasSuffix(body, want) ||
			!strings.HasPrefix(body, `{"type":"`+string(event)+`","data":{"idempotencyKey":"evt_`) {
			t.Errorf("%s, want …%s", body, want)
		}
	}
	const reference = "<ada> & \u2028 é"
	invited := h.Post(h.customers("/invitations"), map[string]string{"customerReference": reference}).Expect(201)
	h.Post("/sandbox/sites/"+h.site.String()+"/customers/"+url.PathEscape(reference)+"/signup", nil).Expect(200)
	shows(models.EventCustomerLinked, "customer", h.Get(h.customer(reference, "")).Expect(200).Body, invited.TraceID())
	h.Post(h.customer(reference, "/revocation"), nil).Expect(200)
	shows(models.EventCustomerRevoked, "customer", h.Get(h.customer(reference, "")).Expect(200).Body, invited.TraceID())
	h.advance(t, time.Second)
	invited = h.Post(h.customers("/invitations"), map[string]string{"customerReference": reference}).Expect(201)
	h.advance(t, week)
	if _, err := h.store.ExpireInvitations(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	shows(models.EventCustomerExpired, "customer", h.Get(h.customer(reference, "")).Expect(200).Body, invited.TraceID())

	batch := map[string]any{"batchReference": reference,
		"rows": []any{map[string]any{"customerReference": "a", "rowReference": "b", "amount": 1}}}
	submitted := h.Post("/billing/sites/"+h.site.String()+"/batches", batch).Expect(202)
	h.Post(submitted.Header.Get("Location")+"/cancellation", nil).Expect(200)
	var task models.TaskID
	if err := h.store.DB().NewRaw("SELECT id FROM outbox WHERE kind = 'announceBatch'").
		Scan(t.Context(), &task); err != nil {
		t.Fatal(err)
	}
	job := jobs.Announce{Store: h.store}
	if err := job.Run(t.Context(), models.Task{ID: task}); err != nil {
		t.Fatal(err)
	}
	listed := string(h.Get("/billing/sites/" + h.site.String() + "/batches").Expect(200).Body)
	listed = strings.TrimPrefix(listed, `{"data":{"items":[`)
	listed = listed[:strings.LastIndex(listed, `],"totalItems"`)]
	shows(models.EventBatchSettled, "batch", []byte(`{"data":`+listed+`,"traceId"`), submitted.TraceID())
}
