package api

import (
	"context"
	"crypto/rand"
	"log/slog"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"partnerbilling/models"
)

// LogHandler returns a handler that adds the context's trace id to every record, as traceId.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := models.TraceIDFrom(ctx); id != "" {
		r.AddAttrs(slog.String("traceId", string(id)))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }

// SpanIDs is an OpenTelemetry IDGenerator. A new trace has the context's trace id, so the traceId
// of an answer or a log line finds its spans.
type SpanIDs struct{}

// NewIDs returns the ids of a root span.
func (g SpanIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, err := trace.TraceIDFromHex(string(models.TraceIDFrom(ctx)))
	if err != nil {
		rand.Read(id[:])
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID returns the id of a span in a running trace.
func (SpanIDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	rand.Read(id[:])
	return id
}

// withRemoteSpan continues the trace of a valid traceparent header. Only spans use it; traceId
// stays the service's own.
func withRemoteSpan(ctx context.Context, h *fasthttp.RequestHeader) context.Context {
	if len(h.PeekAll("traceparent")) != 1 {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, headerCarrier{h})
}

// headerCarrier adapts fasthttp's headers to OpenTelemetry. It is read-only.
type headerCarrier struct{ h *fasthttp.RequestHeader }

func (c headerCarrier) Get(key string) string { return string(c.h.Peek(key)) }

func (c headerCarrier) Set(string, string) {}

func (c headerCarrier) Keys() []string { return nil }
