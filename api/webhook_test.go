package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte("no \x00 coffee \xff"))
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

type attemptData struct {
	Number                                      int
	Endpoint, URL, Address, Error, ResponseHead string
	StartedAt                                   models.Millis
	DurationMs                                  int64
	StatusCode                                  int
	IdempotencyKey, Status                      string // of a test
}

func TestWebhookTests(t *testing.T) {
	h := newHooks(t, nil)
	h.Post("/webhooks/endpoints/default/test", nil).Refused(404, "webhooks:endpoint-not-found")
	_, endpoint := h.put("default", h.receiver.URL+"/ok")
	h.put(h.site.String(), h.receiver.URL+"/fails")
	var good, bad attemptData
	h.Post("/webhooks/endpoints/default/test", nil).Expect(200).Data(&good)
	r := <-h.got
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
	first := <-h.got
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
		r := <-h.got
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
	h.Post("/webhooks/events/redelivery", `{"status":"x","type":"y","siteId":"y","from":-1}`).Refused(400,
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
	h.Post("/webhooks/secret/rotation", `{"activateAt":"soon"}`).Refused(400, "webhooks:invalid-field activateAt")
}

// stream reads server-sent events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
	id    string // the last one
}

// listen starts a stream, or resumes one after the given id.
func (h *hooks) listen(after ...string) *stream {
	h.t.Helper()
	return openStream(h.t, h.BaseURL+"/webhooks/listen", "owner", after...)
}

// openStream starts a stream at a URL, or resumes one after the given id.
func openStream(t *testing.T, url, token string, after ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "text/event-stream")
	for _, id := range after {
		request.Header.Set("Last-Event-ID", id)
	}
	transport := &http.Transport{}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK ||
		got != "text/event-stream;charset=UTF-8" {
		t.Fatalf("%d, %s", response.StatusCode, got)
	}
	s := &stream{
		t: t, lines: bufio.NewScanner(response.Body),
		close: func() { cancel(); _ = response.Body.Close(); transport.CloseIdleConnections() },
	}
	t.Cleanup(s.close)
	s.want(": listening")
	s.readID()
	s.want("")
	return s
}

func (s *stream) line() string {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatalf("the stream has ended: %v", s.lines.Err())
	}
	return s.lines.Text()
}

func (s *stream) want(line string) {
	s.t.Helper()
	if got := s.line(); got != line {
		s.t.Fatalf("got %q, want %q", got, line)
	}
}

// readID reads the id line and returns the event's key in it.
func (s *stream) readID() (key string) {
	s.t.Helper()
	line := s.line()
	id, ok := strings.CutPrefix(line, "id: ")
	key, _, positioned := strings.Cut(id, ":")
	if !ok || !positioned {
		s.t.Fatalf("got %q, want an id", line)
	}
	s.id = id
	return key
}

// event reads one event of a type.
func (s *stream) event(id models.WebhookEventID, event models.WebhookEventType) heardEvent {
	s.t.Helper()
	if key := s.readID(); key != id.String() {
		s.t.Fatalf("got %s, want %s", key, id)
	}
	s.want("event: " + string(event))
	return s.streamedRequest()
}

func TestListen(t *testing.T) {
	h := newHooks(t, nil)
	s := h.listen()
	id, _ := h.insert()
	if first := s.event(id, models.EventTransactionStatus); first.header.Get("x-svc-signature") != "" ||
		!strings.Contains(first.body, "<&>\u2028") {
		t.Errorf("without a secret: %+v", first)
	}
	_, endpoint := h.put("default", "https://example.com/")
	id, _ = h.insert()
	signed := s.event(id, models.EventTransactionStatus)
	wh, err := standardwebhooks.NewWebhook(endpoint.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := wh.Verify([]byte(signed.body), signed.header); err != nil ||
		signed.header.Get("webhook-id") != id.String() {
		t.Errorf("%v: %+v", err, signed)
	}
}

// HTTP/1.0 knows no chunks, so the stream ends with the connection.
func TestListenByHTTP10(t *testing.T) {
	h := newHooks(t, nil)
	connection, err := net.Dial("tcp", strings.TrimPrefix(h.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection,
		"GET /webhooks/listen HTTP/1.0\r\nAuthorization: Bearer owner\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != http.StatusOK || len(response.TransferEncoding) > 0 ||
		response.ContentLength != -1 || !response.Close ||
		response.Header.Get("Content-Type") != "text/event-stream;charset=UTF-8" ||
		response.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%v, %+v", err, response)
	}
	s := &stream{t: h.t, lines: bufio.NewScanner(response.Body), close: func() {}}
	s.want(": listening")
	s.readID()
	s.want("")
	id, _ := h.insert()
	s.event(id, models.EventTransactionStatus)
}

// A resumed stream delivers events of all types, each exactly once.
func TestListenResumes(t *testing.T) {
	h := newHooks(t, nil)
	h.Send("PUT", "/webhooks/endpoints/default",
		map[string]any{"url": "https://example.com/", "events": models.WebhookEventTypes}).Expect(201)
	s := h.listen()
	s.close()
	first, _ := h.insert()
	s = h.listen(s.id) // before the first event
	s.event(first, models.EventTransactionStatus)
	second, _ := h.insert()
	s.event(second, models.EventTransactionStatus)
	cutOff := s.id
	s.close()
	h.Post("/webhooks/events/"+first.String()+"/redelivery", nil).Expect(202)
	h.invite(t, "eve")
	h.Post(h.customer("eve", "/revocation"), nil).Expect(200)
	s = h.listen(cutOff)
	s.event(first, models.EventTransactionStatus)
	key := s.readID()
	s.want("event: customerRevoked")
	if e := s.streamedRequest(); e.header.Get("webhook-id") != key ||
		e.header.Get("svc-event-type") != "customerRevoked" || e.header.Get("x-svc-signature") == "" {
		t.Errorf("%s: %+v", key, e)
	}
	for _, id := range []string{"x", second.String(), second.String() + ":x", cutOff + "0x"} {
		h.With("Last-Event-ID", id).Get("/webhooks/listen").Refused(400, "requests:invalid-header Last-Event-ID")
	}
}

// An organisation's streams are bounded. Others may listen meanwhile, and a closed stream counts no
// more.
func TestListenersAreBounded(t *testing.T) {
	h := newHooks(t, nil)
	first := h.listen()
	for range api.MaxOrganisationStreams - 1 {
		h.listen()
	}
	a := h.Get("/webhooks/listen").Refused(429, "requests:rate-limited")
	if got := a.Header.Get("Retry-After"); got != "1" ||
		!strings.Contains(a.Faults()[0].Message, "as many open streams as it may have") {
		t.Errorf("Retry-After %q, %+v", got, a.Faults())
	}
	first.close()
	h.Send("HEAD", "/webhooks/listen", nil).Expect(200) // opens none
	poll, ended := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer poll.Stop()
	for {
		ctx, cancel := context.WithCancel(context.Background())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.BaseURL+"/webhooks/listen", nil)
		check(t, err)
		request.Header.Set("Authorization", "Bearer owner")
		response, err := http.DefaultTransport.RoundTrip(request)
		check(t, err)
		cancel()
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
		select {
		case <-poll.C:
		case <-ended:
			t.Fatalf("the closed stream still counts: %d", response.StatusCode)
		default:
		}
	}
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

type heardEvent struct {
	header http.Header
	body   string
}

func (s *stream) streamedRequest() heardEvent {
	s.t.Helper()
	var data struct {
		Headers map[string]string
		Body    string
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(s.line(), "data: ")), &data); err != nil {
		s.t.Fatal(err)
	}
	s.want("")
	e := heardEvent{http.Header{}, data.Body}
	for name, value := range data.Headers {
		e.header.Set(name, value)
	}
	return e
}

// Open streams do not delay a shutdown.
func TestListenEndsOnShutdown(t *testing.T) {
	var cfg api.Config
	h := newHooks(t, func(c *api.Config) { cfg = *c })
	server := api.New(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	there := *h.Client
	there.BaseURL = "http://" + ln.Addr().String()
	h.Client = &there
	s := h.listen()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("shut down: %v", err)
	}
	if s.lines.Scan() || s.lines.Err() != nil {
		t.Errorf("the stream did not end well: %q, %v", s.lines.Text(), s.lines.Err())
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
