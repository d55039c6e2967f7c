package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"partnerbilling/models"
)

// A span that starts under a trace id arrives at the collector under that id.
func TestSpansReachTheCollector(t *testing.T) {
	t.Parallel()
	received := make(chan *coltracepb.ExportTraceServiceRequest, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var export coltracepb.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		received <- &export
		_ = json.NewEncoder(w).Encode(struct{}{})
	}))
	defer collector.Close()
	s := &service{cfg: Config{Env: sandbox, OTLPURL: collector.URL}, log: slog.New(slog.DiscardHandler)}
	provider, err := s.tracer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := models.NewTraceID()
	_, span := provider.Tracer("test").Start(models.WithTraceID(context.Background(), id), "work")
	span.End()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	got := (<-received).GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
	if hex.EncodeToString(got.GetTraceId()) != string(id) || !strings.Contains(got.GetName(), "work") {
		t.Errorf("span %q in trace %x, want %s", got.GetName(), got.GetTraceId(), id)
	}
}
