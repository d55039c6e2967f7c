package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"partnerbilling/api/client"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue"
)

// collector receives spans over OTLP/HTTP.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracepb.Span
}

func startCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var export coltracepb.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// trace returns the spans of a trace, by their start.
func (c *collector) trace(id string) (spans []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b *tracepb.Span) int {
		return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano())
	})
	return spans
}

// drawTrace draws the spans below a parent as a tree. It leaves out failed dispatches without a
// consumer: Redis has not answered them in time, and another one followed.
func drawTrace(spans []*tracepb.Span, parent []byte, indent string) string {
	var b strings.Builder
	for _, s := range spans {
		if string(s.GetParentSpanId()) != string(parent) {
			continue
		}
		below := drawTrace(spans, s.GetSpanId(), indent+"  ")
		failed := s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR
		if s.GetKind() == tracepb.Span_SPAN_KIND_PRODUCER && failed && below == "" {
			continue
		}
		kind := strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_"))
		fmt.Fprintf(&b, "%s%s (%s)\n%s", indent, s.GetName(), kind, below)
	}
	return b.String()
}

// awaitMarkers waits until a worker has looked for losses of Redis.
func (f *fleet) awaitMarkers() {
	f.Helper()
	cache, err := queue.ConnectURL(f.redis.URL)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = cache.Close() }()
	f.await("a worker has set the markers of all queues", func() bool {
		for _, q := range models.Queues {
			marker := cache.Get(f.Context(), "partnerbilling:marker:{"+string(q)+"}").Val()
			if !strings.HasPrefix(marker, "ready") {
				return false
			}
		}
		return true
	})
}

// withTraceparent adds a caller's trace to requests.
type withTraceparent struct{ value string }

func (w withTraceparent) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", w.value)
	return http.DefaultTransport.RoundTrip(r)
}

// One trace leads from the submission of a batch over its task and the rail to its webhook. The
// gateway and the partner get the spans of their calls, and a caller's trace is linked.
func TestTraceOfABatch(t *testing.T) {
	t.Parallel()
	spans, traceparents := startCollector(t), make(chan [2]string, 10)
	var gateway http.Handler
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // others reconcile
			traceparents <- [2]string{r.URL.Path, r.Header.Get("Traceparent")}
		}
		if r.URL.Path != "/webhook" {
			gateway.ServeHTTP(w, r)
		}
	}))
	defer receiver.Close()
	f := newFleet(t, modelstest.DSN(t), "SVC_OTLP_URL", spans.URL, "SVC_RAIL", "http", "SVC_RAIL_URL", receiver.URL,
		"SVC_RAIL_KEY", "test:secret")
	var err error
	gateway, err = rail.NewServer(rail.ServerConfig{
		Rail: rail.NewSandbox(f.store), Keys: []rail.SigningKey{{ID: "test", Secret: []byte("secret")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	modelstest.Customer(t, f.store, f.site.ID, "ada", models.BehaviourPays)
	f.startAPI()
	f.startWorker()
	f.awaitMarkers() // before, a task may be dispatched twice
	const caller, callerSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	f.clientConfig.HTTP = &http.Client{Transport: withTraceparent{"00-" + caller + "-" + callerSpan + "-01"}}
	api := client.New(f.clientConfig)
	if _, err := api.PutWebhookEndpoint(t.Context(), "default", receiver.URL+"/webhook", "batchSettled"); err != nil {
		t.Fatal(err)
	}
	receipt, err := api.SubmitBatch(t.Context(), f.site.ID.String(), client.Batch{
		BatchReference: "b", Rows: []client.Row{{CustomerReference: "ada", RowReference: "r", Amount: 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	received := map[string]string{}
	for range 2 {
		got := <-traceparents
		received[got[0]] = got[1]
	}
	f.workers[0].terminate() // which sends the last spans
	f.apiProcess.terminate()

	id := traceIDOfBatch(f, receipt.BatchReference)
	of := spans.trace(id)
	drawn := drawTrace(of, nil, "")
	t.Logf("trace %s:\n%s", id, drawn)
	if diff := cmp.Diff(`POST /billing/sites/{siteId}/batches (internal)
  dispatch debitRows (producer)
    debitRows (consumer)
      rail debit (client)
  dispatch announceBatch (producer)
    announceBatch (consumer)
  dispatch deliverWebhook (producer)
    deliverWebhook (consumer)
      webhook batchSettled (client)
`, drawn); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
	for path, name := range map[string]string{"/webhook": "webhook batchSettled", "/debits": "rail debit"} {
		want := "00-" + id + "-" + spanID(of, name) + "-01"
		if received[path] != want {
			t.Errorf("%s was called with traceparent %q, want %q", path, received[path], want)
		}
	}
	continued := spans.trace(caller)
	i := slices.IndexFunc(continued, func(s *tracepb.Span) bool {
		return s.GetName() == "POST /billing/sites/{siteId}/batches"
	})
	if i < 0 || hex.EncodeToString(continued[i].GetParentSpanId()) != callerSpan || len(continued[i].GetLinks()) != 1 ||
		hex.EncodeToString(continued[i].GetLinks()[0].GetTraceId()) != id {
		t.Errorf("the caller's trace has %v", continued)
	}
}

func spanID(spans []*tracepb.Span, name string) string {
	for _, s := range spans {
		if s.GetName() == name {
			return hex.EncodeToString(s.GetSpanId())
		}
	}
	return ""
}

func traceIDOfBatch(f *fleet, reference string) (id string) {
	f.Helper()
	err := f.store.DB().NewRaw("SELECT trace_id FROM batches WHERE batch_reference = ?", reference).
		Scan(f.Context(), &id)
	if err != nil {
		f.Fatal(err)
	}
	return id
}

// The sampler decides by the request's own trace id, in whatever trace a span is.
func TestSampler(t *testing.T) {
	t.Parallel()
	s := sampler{sdktrace.TraceIDRatioBased(0.5)}
	const caller = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled := 0
	for range 1000 {
		id := models.NewTraceID()
		own, _ := trace.TraceIDFromHex(string(id))
		foreign, _ := trace.TraceIDFromHex(caller)
		ctx := models.WithTraceID(context.Background(), id)
		decide := func(in trace.TraceID, parent trace.TraceFlags) bool {
			ctx := ctx
			if parent < 2 {
				ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
					TraceID: in, SpanID: trace.SpanID{1}, TraceFlags: parent,
				}))
			}
			return s.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: in}).Decision ==
				sdktrace.RecordAndSample
		}
		root := decide(own, 2)
		if root {
			sampled++
		}
		if decide(own, trace.FlagsSampled) != root || decide(foreign, trace.FlagsSampled) != root ||
			decide(foreign, 0) {
			t.Fatalf("trace %s: spans of one request are sampled differently", id)
		}
	}
	if sampled < 400 || sampled > 600 {
		t.Errorf("%d of 1000 traces are sampled, want half", sampled)
	}
}
