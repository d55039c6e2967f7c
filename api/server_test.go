package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models/tracing"
)

var hex32 = regexp.MustCompile(`^[0-9a-f]{32}$`)

func TestErrorShapes(t *testing.T) {
	g := newTestServer(t, nil)
	a := g.Post(site("/batches"), `{"batchReference":"","amount":1.0}`).Expect(400)
	want := `{"errors":[` +
		`{"code":"urn:svc:platform:billing:error:batches:invalid-field","displayMessage":"batchReference must have 1 to 128 characters","target":"batchReference"},` +
		`{"code":"urn:svc:platform:billing:error:batches:invalid-field","displayMessage":"amount must be an integer","target":"amount"}],` +
		`"traceId":"` + a.TraceID() + `"}`
	if string(a.Body) != want {
		t.Errorf("Shape A:\n%s\n%s", a.Body, want)
	}
	a = g.With("Authorization", "").Get(site("/batches/b")).Expect(401)
	if strings.Contains(string(a.Body), "target") {
		t.Errorf("a target where there is none: %s", a.Body)
	}
	a = g.Post(checkout("/payment-intent"), `{"amount":0,"lineItems":[{},{"quantity":0}]}`).Expect(400)
	var b struct {
		Errors    []struct{ Message string }
		TraceID   string
		Timestamp int64
	}
	if err := json.Unmarshal(a.Body, &b); err != nil {
		t.Fatal(err)
	}
	messages := fmt.Sprint(b.Errors)
	if messages != "[{amount must be greater than 0} {lineItems[0].quantity is required} "+
		"{lineItems[1].quantity must be at least 1}]" {
		t.Errorf("Shape B: %s", messages)
	}
	if age := time.Since(time.UnixMilli(b.Timestamp)); age < 0 || age > time.Minute {
		t.Errorf("timestamp %d", b.Timestamp)
	}
	for _, c := range []struct {
		answer  func() int
		status  int
		message string
	}{
		{func() int { return g.With("Authorization", "").Post(checkout("/payment-intent"), `{}`).Status }, 401, ""},
		{func() int { return g.WithToken("narrow").Post(checkout("/payment-intent"), `{}`).Status }, 403, ""},
		{func() int { return g.Post("/checkout/x/payment-intent", `{}`).Status }, 403, ""},
		{func() int {
			return g.With("Content-Type", "text/plain").Post(checkout("/payment-intent"), `{}`).Status
		}, 415, ""},
	} {
		if got := c.answer(); got != c.status { // the client holds the shape against the description
			t.Errorf("status %d, want %d", got, c.status)
		}
	}
	g.limiter.set(ratelimit.Decision{})
	g.Post(checkout("/payment-intent"), `{}`).Expect(429)
}

func TestMalformedJSONErrorHasPositionWithoutContent(t *testing.T) {
	g := newTestServer(t, nil)
	for body, want := range map[string]string{
		`{"secret":1,"secret":2}`:           "The body has an object with a duplicate key (at byte 12).",
		`{"secret"`:                         "The body is not complete JSON (at byte 9).",
		`["secret"]`:                        "The body must be one JSON object.",
		"\ufeff{}":                          "The body must not start with a byte order mark (at byte 0).",
		`{"BatchReference":"b","amount":1}`: "batchReference must be written with exactly this capitalisation",
	} {
		if got := g.Post(site("/batches"), body).Expect(400).Faults()[0]; got.Message != want ||
			got.Code != "requests:malformed-json" {
			t.Errorf("%s: %+v, want %q", body, got, want)
		}
	}
}

func TestFailuresRevealNothing(t *testing.T) {
	g := newTestServer(t, nil)
	for how, c := range map[string]struct {
		status int
		fault  string
	}{
		"panic":       {500, "requests:internal"},
		"error":       {500, "requests:internal"},
		"unencodable": {500, "requests:internal"},
		"unavailable": {503, "requests:unavailable"},
		"slow":        {503, "requests:unavailable"},
		"field":       {400, "requests:invalid-field expiresAt"},
		"reused":      {422, "requests:idempotency-key-reused Idempotency-Key"},
		"inflight":    {409, "requests:idempotency-key-in-flight Idempotency-Key"},
	} {
		a := g.Get("/fail/"+how).Refused(c.status, c.fault)
		if strings.Contains(string(a.Body), "secret") || a.Header.Get("ETag") != "" {
			t.Errorf("%s: %v %s", how, a.Header, a.Body)
		}
		if c.status == 503 && a.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: Retry-After %q", how, a.Header.Get("Retry-After"))
		}
		log := g.log.String()
		if c.status >= 500 && !strings.Contains(log, a.TraceID()) {
			t.Errorf("%s: the log does not have the trace id", how)
		}
	}
	for _, want := range []string{"secret of the panic", "test_server_test.go", "secret: relation does not exist"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log does not have %q", want)
		}
	}
}

func TestSuccessIsWrittenPlainly(t *testing.T) {
	g := newTestServer(t, nil)
	a := g.Get("/fail/not").Expect(200)
	if want := `{"data":{"text":"<&>\u2028é"},"traceId":"` + a.TraceID() + `"}`; string(a.Body) != want {
		t.Errorf("got %s, want %s", a.Body, want)
	}
	if got := a.Header.Get("Server"); got != "" {
		t.Errorf("Server: %s", got)
	}
	a = g.Post(site("/batches"), `{"batchReference":"2026/11 #7+é","amount":1}`).Expect(202)
	if got, want := a.Header.Get("Location"), site("/batches/2026%2F11%20%237+%C3%A9"); got != want {
		t.Errorf("Location %s, want %s", got, want)
	}
	if a = g.Post(site("/batches"), `{"batchReference":"b","amount":13}`).Expect(409); a.Header.Get("Location") != "" {
		t.Error("a refused request has a Location")
	}
}

// Over HTTPS, answers tell browsers to use only HTTPS.
func TestStrictTransport(t *testing.T) {
	for base, want := range map[string]string{"https://billing.example": "max-age=31536000",
		"http://127.0.0.1:8080": "", "": ""} {
		g := newTestServer(t, func(c *api.Config) { c.PublicBaseURL = base })
		answers := []*apitest.Answer{
			g.Get(site("/batches/b")), g.Get("/nothing"), g.Get("/fail/panic"),
			g.With("Authorization", "").Get(site("/batches/b")), g.RawUnchecked("nonsense\r\n\r\n", 1)[0],
		}
		for _, a := range answers {
			if got := a.Header.Get("Strict-Transport-Security"); got != want {
				t.Errorf("%s: status %d with %q, want %q", base, a.Status, got, want)
			}
		}
	}
}

func TestTraceIDs(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans),
		sdktrace.WithIDGenerator(tracing.SpanIDs{}))
	g := newTestServer(t, func(c *api.Config) { c.TracerProvider = provider })
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, traceparent := range []string{
		"", "00-" + parent + "-00f067aa0ba902b7-01", "00-" + parent + "-00f067aa0ba902b7-00", // valid or none
		"nonsense", "00-" + strings.ToUpper(parent) + "-00f067aa0ba902b7-01", "00-" + parent + "-0000000000000000-01",
		"ff-" + parent + "-00f067aa0ba902b7-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
	} {
		seen := map[string]bool{}
		for range 3 {
			id := g.With("traceparent", traceparent).Get("/fail/not").TraceID()
			if !hex32.MatchString(id) || seen[id] || id == parent {
				t.Errorf("%s: trace id %q", traceparent, id)
			}
			seen[id] = true
			if !strings.Contains(g.log.String(), `"traceId":"`+id+`"`) {
				t.Errorf("%s is not in the log", id)
			}
			own, continued := spanIn(spans, id, id), spanIn(spans, id, parent)
			if own == nil || own.Parent().IsValid() || own.Name() != "GET /fail/{how}" {
				t.Errorf("%s: request %s has the span %+v", traceparent, id, own)
			}
			switch {
			case !strings.HasPrefix(traceparent, "00-"+parent+"-00f") || strings.HasSuffix(traceparent, "-00"):
				if continued != nil {
					t.Errorf("%s: request %s continues a trace: %+v", traceparent, id, continued)
				}
			case continued == nil || continued.Parent().SpanID().String() != "00f067aa0ba902b7" ||
				continued.Name() != own.Name() || !linked(continued, own.SpanContext()) ||
				!linked(own, continued.Parent()):
				t.Errorf("%s: request %s continues as %+v", traceparent, id, continued)
			}
		}
	}
	g.Get("/fail/panic").Expect(500)
	if last := spans.Ended()[len(spans.Ended())-1]; last.Status().Code.String() != "Error" {
		t.Errorf("status of a failed span: %v", last.Status())
	}
}

// linked reports whether a span has a link to another one.
func linked(from sdktrace.ReadOnlySpan, to trace.SpanContext) bool {
	return slices.ContainsFunc(from.Links(), func(l sdktrace.Link) bool {
		return l.SpanContext.TraceID() == to.TraceID() && l.SpanContext.SpanID() == to.SpanID()
	})
}

// spanIn returns the span of a request, by the trace id in its answer, in a trace.
func spanIn(spans *tracetest.SpanRecorder, id, in string) sdktrace.ReadOnlySpan {
	for _, span := range spans.Ended() {
		for _, a := range span.Attributes() {
			if a.Key == "svc.trace_id" && a.Value.AsString() == id && span.SpanContext().TraceID().String() == in {
				return span
			}
		}
	}
	return nil
}

// Fiber's strings alias a buffer that the next request overwrites; Request returns copies.
func TestStringsOutliveTheirRequest(t *testing.T) {
	g := newTestServer(t, nil)
	const n = 200
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range n / 4 {
				reference := strings.Repeat(string(rune('a'+worker)), 20+i)
				if _, err := g.Try(context.Background(), "GET", site("/batches/"+reference), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	lengths := map[string]bool{}
	for range n {
		s := <-g.kept
		if strings.Trim(s, s[:1]) != "" || lengths[s] {
			t.Errorf("a kept parameter became %q", s)
		}
		lengths[s] = true
	}
}

func TestMetricsNameRoutesOnly(t *testing.T) {
	g := newTestServer(t, nil)
	g.Get(site("/batches/secret-reference")).Expect(200)
	g.Get("/secret-path").Expect(404)
	g.Send("BREW", site("/batches/b"), nil).Expect(405)
	g.RawUnchecked("nonsense\r\n\r\n", 1)
	want := []string{
		"GET /billing/sites/{siteId}/batches/{batchReference} 200: 1",
		"GET none 404: 1",
		"other none 400: 1",
		"other none 405: 1",
	}
	if diff := cmp.Diff(want, g.requestCounts(t)); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(g.log.String(), "secret") {
		t.Error("the log has paths")
	}
}

// requestCounts returns the values of the request counter.
func (g *testServer) requestCounts(t *testing.T) []string {
	t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var counts []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if labels := m.GetLabel(); family.GetName() == "svc_http_requests_total" {
				counts = append(counts, fmt.Sprintf("%s %s %s: %v", labels[0].GetValue(), labels[1].GetValue(),
					labels[2].GetValue(), m.GetCounter().GetValue()))
			}
		}
	}
	slices.Sort(counts)
	return counts
}
