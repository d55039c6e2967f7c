package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/models"
)

// loggedRequest is a request of the log.
type loggedRequest struct {
	TraceID, Method, Path, Route, ErrorCode, ClientID string
	At                                                models.Millis
	Status                                            int
	DurationMs                                        int64
	Console                                           bool
}

type loggedRequests struct {
	Items    []loggedRequest
	Position string
}

// logged lists the request log.
func logged(c *apitest.Client, query string) loggedRequests {
	return dataOf[loggedRequests](c.Get("/sandbox/requests" + query).Expect(200))
}

// tracesOf are the traces of the items, in order.
func (l loggedRequests) traces() []string {
	traces := make([]string, len(l.Items))
	for i, item := range l.Items {
		traces[i] = item.TraceID
	}
	return traces
}

// request reads one request from a stream.
func (s *stream) request() (r loggedRequest) {
	s.t.Helper()
	s.readID()
	s.want("event: request")
	line := s.line()
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &r); err != nil {
		s.t.Fatalf("%q: %v", line, err)
	}
	s.want("")
	return r
}

// wantRequest reads a request that must be the one of an answer.
func (s *stream) wantRequest(of *apitest.Answer) {
	s.t.Helper()
	if r := s.request(); r.TraceID != of.TraceID() {
		s.t.Fatalf("got %+v, want the request %s", r, of.TraceID())
	}
}

// The list has the latest requests of the organisation in order. It lacks those without an
// accepted token, and itself.
func TestLoggedRequests(t *testing.T) {
	t.Parallel()
	b := newBilling(t, nil)
	if got := logged(b.Client, ""); len(got.Items) != 0 || got.Position == "" {
		t.Errorf("at first %+v", got)
	}
	invited := b.Post(b.customers("/invitations"), `{"customerReference":"ada","secret":"hush"}`).Expect(201)
	missing := b.Get(b.customer("é / ü", "?cursor=hush")).Expect(400)
	refused := b.Post(b.intents("?access_token=hush"), `{"amount":1}`).Expect(400)
	b.WithToken("unknown").Get("/webhooks/endpoints").Expect(401)
	b.Get("/sandbox/unknown").Expect(404)
	stranger := b.other.Get("/webhooks/endpoints").Expect(200)
	b.app.Get("/sandbox/requests").Refused(403, "auth:insufficient-scope")

	got := logged(b.Client, "")
	if diff := cmp.Diff([]string{refused.TraceID(), missing.TraceID(), invited.TraceID()}, got.traces()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for i := range got.Items {
		item := &got.Items[i]
		if item.At == 0 || item.DurationMs < 0 || item.DurationMs > 60_000 || item.ClientID != b.client.String() {
			t.Errorf("%+v", item)
		}
		item.TraceID, item.At, item.DurationMs, item.ClientID = "", 0, 0, ""
	}
	const billing = "/billing/sites/{siteId}/customers"
	want := []loggedRequest{
		{
			Method: "POST", Path: b.intents("?access_token=[redacted]"), Route: "/checkout/{siteId}/payment-intent",
			Status: 400, ErrorCode: "urn:svc:platform:billing:error:requests:invalid-parameter",
		},
		{
			Method: "GET", Path: b.customer("é / ü", "?cursor=[redacted]"), Route: billing + "/{customerReference}",
			Status: 400, ErrorCode: "urn:svc:platform:billing:error:customers:invalid-parameter",
		},
		{Method: "POST", Path: b.customers("/invitations"), Route: billing + "/invitations", Status: 201},
	}
	if diff := cmp.Diff(want, got.Items); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{stranger.TraceID()}, logged(b.other, "").traces()); diff != "" {
		t.Errorf("of the other organisation (-want +got):\n%s", diff)
	}
}

func TestLoggedRequestFilters(t *testing.T) {
	t.Parallel()
	b := newBilling(t, nil)
	post := b.Post(b.customers("/invitations"), `{"customerReference":"ada"}`).Expect(201).TraceID()
	missing := b.Get(b.customer("bob", "")).Expect(404).TraceID()
	invalid := b.Get("/webhooks/events?limit=0").Expect(400).TraceID()
	b.Send("HEAD", "/webhooks/endpoints", nil).Expect(200)
	all := logged(b.Client, "").traces()
	if len(all) != 4 {
		t.Fatalf("%d requests", len(all))
	}
	for query, want := range map[string][]string{
		"?limit=2":                      all[:2],
		"?limit=1000":                   all,
		"?status=4xx":                   {invalid, missing},
		"?status=404":                   {missing},
		"?status=5xx":                   {},
		"?method=POST":                  {post},
		"?method=HEAD":                  all[:1],
		"?path=/webhooks/":              all[:2],
		"?path=/webhooks/&status=400":   {invalid},
		"?limit=1&status=4xx":           {invalid},
		"?path=%2Fbilling&method=GET":   {missing},
		"?status=2xx&path=/webhooks/en": {all[0]},
	} {
		if diff := cmp.Diff(want, logged(b.Client, query).traces()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for query, faults := range map[string][]string{
		"?limit=0":      {"requests:invalid-parameter limit"},
		"?limit=1001":   {"requests:invalid-parameter limit"},
		"?status=4x":    {"requests:invalid-parameter status"},
		"?status=6xx":   {"requests:invalid-parameter status"},
		"?status=099":   {"requests:invalid-parameter status"},
		"?status=600":   {"requests:invalid-parameter status"},
		"?status=":      {"requests:invalid-parameter status"},
		"?method=post":  {"requests:invalid-parameter method"},
		"?path=billing": {"requests:invalid-parameter path"},
		"?cursor=x":     {"requests:invalid-parameter cursor"},
		"?limit=x&status=+404&method=": {
			"requests:invalid-parameter limit", "requests:invalid-parameter method", "requests:invalid-parameter status",
		},
		"?limit=1&limit=1": {"requests:invalid-parameter limit"},
		"?path=%ff":        {"requests:invalid-parameter path"},
	} {
		b.Get("/sandbox/requests"+query).Refused(400, faults...)
		b.With("Accept", "text/event-stream").Get("/sandbox/requests"+query).Refused(400, faults...)
	}
}

// A client that prefers JSON gets the list.
func TestLoggedRequestsNegotiate(t *testing.T) {
	t.Parallel()
	b := newBilling(t, nil)
	for _, accept := range []string{
		"*/*", "application/json", "text/event-stream;q=0.5, application/json", "text/event-stream;q=0", "text/*",
		"application/json, text/event-stream",
	} {
		a := b.With("Accept", accept).Get("/sandbox/requests").Expect(200)
		if got := a.Header.Get("Content-Type"); got != api.ContentTypeJSON {
			t.Errorf("%s: %s", accept, got)
		}
	}
	a := b.With("Accept", "text/event-stream").Send("HEAD", "/sandbox/requests", nil).Expect(200)
	if got := a.Header.Get("Content-Type"); got != "text/event-stream;charset=UTF-8" {
		t.Errorf("HEAD: %s", got)
	}
}

// A stream sends each request of the organisation once, in order, as it is answered.
func TestTailRequests(t *testing.T) {
	t.Parallel()
	b := newBilling(t, nil)
	b.Get("/webhooks/events").Expect(200)
	s := openStream(t, b.BaseURL+"/sandbox/requests", "owner")
	posts := openStream(t, b.BaseURL+"/sandbox/requests?method=POST&limit=1", "owner")
	stranger := openStream(t, b.BaseURL+"/sandbox/requests", "stranger")
	b.other.Get("/webhooks/endpoints").Expect(200)
	for range 250 { // more than a page
		s.wantRequest(b.Get("/webhooks/endpoints").Expect(200))
	}
	logged(b.Client, "") // is not on the stream
	created := b.Post(b.intents(""), `{"amount":5}`).Expect(201)
	s.wantRequest(created)
	posts.wantRequest(created)
	refused := b.other.Get("/webhooks/events?limit=0").Expect(400)
	if r := stranger.request(); r.Path != "/webhooks/endpoints" || r.Status != 200 {
		t.Errorf("%+v", r)
	}
	stranger.wantRequest(refused)
}

// A stream resumes after an event, after a list, and before its first event. It leaves nothing out
// and repeats nothing, also if many requests came in between.
func TestTailRequestsResumes(t *testing.T) {
	t.Parallel()
	b := newBilling(t, nil)
	url := b.BaseURL + "/sandbox/requests"
	empty := logged(b.Client, "").Position // of a log without requests
	first := b.Get("/webhooks/endpoints").Expect(200)
	openStream(t, url, "owner", empty).wantRequest(first)
	s := openStream(t, url, "owner")
	s.close()
	second := b.Get("/webhooks/endpoints").Expect(200)
	s = openStream(t, url, "owner", s.id) // before the first event
	s.wantRequest(second)
	cutOff := s.id
	s.close()
	var between []*apitest.Answer
	for range 120 { // more than a page
		between = append(between, b.Get("/webhooks/events").Expect(200))
	}
	list := logged(b.Client, "?limit=1").Position
	last := b.Get("/webhooks/endpoints").Expect(200)
	s = openStream(t, url, "owner", cutOff)
	for _, a := range between {
		s.wantRequest(a)
	}
	s.wantRequest(last)
	openStream(t, url, "owner", list).wantRequest(last)
	filtered := openStream(t, url+"?path=/webhooks/endpoints", "owner", cutOff)
	filtered.wantRequest(last)

	// A position ahead of the log, as of another process with a slow clock, waits for what is new.
	id, _, _ := strings.Cut(list, ":")
	ahead := openStream(t, url, "owner", id+":999999:1")
	ahead.wantRequest(b.Get("/webhooks/endpoints").Expect(200))

	for _, position := range []string{
		"x", "1", "a:1:1", "A:1", "A:-1:1", "A:1:-1", "A:01:1", "A:1:1:1", "A:1:1000000000000000000", list + "x",
	} {
		b.With("Accept", "text/event-stream").With("Last-Event-ID", position).Get("/sandbox/requests").
			Refused(400, "requests:invalid-header Last-Event-ID")
	}
}

// At another process, also after a restart, a position counts by its time, and so does that of
// another organisation.
func TestTailRequestsResumesElsewhere(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	clock.Store(int64(noon))
	b := newBilling(t, func(cfg *api.Config) {
		cfg.Now = func() time.Time { return models.Millis(clock.Load()).Time() }
	})
	b.Get("/webhooks/events").Expect(200)
	clock.Add(10)
	second := b.Get("/webhooks/endpoints").Expect(200)
	b.other.Get("/webhooks/endpoints").Expect(200)
	strange := logged(b.other, "").Position
	clock.Add(10)
	third := b.Get("/webhooks/events").Expect(200)
	for position, want := range map[string][]*apitest.Answer{
		fmt.Sprintf("ABCDEF:1:%d", noon+9):  {second, third},
		fmt.Sprintf("ABCDEF:9:%d", noon+10): {second, third}, // of the same millisecond
		fmt.Sprintf(":0:%d", noon+11):       {third},
		strange:                             {second, third},
	} {
		s := openStream(t, b.BaseURL+"/sandbox/requests", "owner", position)
		for _, a := range want {
			s.wantRequest(a)
		}
		s.close()
	}
}

// Both kinds of streams of an organisation count for one bound.
func TestTailRequestsIsBounded(t *testing.T) {
	h := newHooks(t, nil)
	h.listen()
	for range api.MaxOrganisationStreams - 1 {
		openStream(t, h.BaseURL+"/sandbox/requests", "owner")
	}
	h.With("Accept", "text/event-stream").Get("/sandbox/requests").Refused(429, "requests:rate-limited")
	h.Get("/webhooks/listen").Refused(429, "requests:rate-limited")
	h.Get("/sandbox/requests").Expect(200)
	openStream(t, h.BaseURL+"/sandbox/requests", "stranger")
}

// A stream of requests ends once its caller has lost access.
func TestTailRequestsIsRechecked(t *testing.T) {
	h, a := newRevocable(t)
	s := openStream(t, h.BaseURL+"/sandbox/requests", "owner")
	a.replace(false, revocations["the token has expired"].outcome)
	for s.lines.Scan() {
		if line := s.lines.Text(); line != ": heartbeat" && line != "" {
			t.Errorf("got %q", line)
		}
	}
	if err := s.lines.Err(); err != nil {
		t.Errorf("the stream did not end well: %v", err)
	}
}
