// Package tracing joins the spans of all processes that work for one request into one trace.
//
// # Identity
//
// The trace id of the spans is the request's models.TraceID, which stored rows and tasks carry. No
// span id is stored. The id of a request's root span derives from the trace id. The id of the span
// of a task's dispatch derives from the task's id and epoch (the number of its claims). A worker
// therefore knows the parent of its spans without a message from the process that made the parent.
// A request that continues a caller's trace also has a span in that trace. Links join the two
// traces.
//
// # Sampling
//
// The sampler in cmd/svc also decides by the trace id, so that all processes with the same ratio
// sample the same traces.
//
// # Cost
//
// A nil *Tracer records nothing, and its methods allocate nothing.
package tracing

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"hash/fnv"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"partnerbilling/models"
)

// Tracer starts the spans of the service. A nil *Tracer starts none.
type Tracer struct{ tracer trace.Tracer }

// New returns a tracer of a provider, nil if the provider is nil. The provider must use SpanIDs as
// its id generator.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer("partnerbilling")}
}

// SpanIDs is an OpenTelemetry IDGenerator. A new trace gets the models.TraceID of the context, so
// the traceId of an answer or a log line finds its spans. Without one, ids are random.
type SpanIDs struct{}

// NewIDs returns the ids of a new trace and of its root span.
func (g SpanIDs) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	id, ok := traceIDOf(models.TraceIDFrom(ctx))
	if ok {
		return id, rootSpanID(id)
	}
	rand.Read(id[:])
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID returns the id of a span in a running trace.
func (SpanIDs) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if id, ok := ctx.Value(spanIDKey{}).(trace.SpanID); ok {
		return id
	}
	rand.Read(id[:])
	return id
}

// spanIDKey is the context key of the id for the next span.
type spanIDKey struct{}

// traceIDOf parses a trace id. It returns false if the id is empty or malformed.
func traceIDOf(id models.TraceID) (trace.TraceID, bool) {
	parsed, err := trace.TraceIDFromHex(string(id))
	return parsed, err == nil
}

// rootSpanID returns the id of the root span of a trace: the last 8 bytes of the trace's id, which
// are random.
func rootSpanID(id trace.TraceID) (span trace.SpanID) {
	copy(span[:], id[len(id)-len(span):])
	return valid(span)
}

// dispatchSpanID returns the id of the span of a task's dispatch.
func dispatchSpanID(t models.Task) (span trace.SpanID) {
	hash := fnv.New64a()
	_, _ = hash.Write(t.ID[:])
	_ = binary.Write(hash, binary.BigEndian, int64(t.Epoch))
	binary.BigEndian.PutUint64(span[:], hash.Sum64())
	return valid(span)
}

// valid replaces the id zero, which no span may have.
func valid(span trace.SpanID) trace.SpanID {
	if !span.IsValid() {
		span[len(span)-1] = 1
	}
	return span
}

// Span is a running span. The zero Span records nothing.
type Span struct{ span trace.Span }

// End ends the span, as failed if err is not nil.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Fail marks the span as failed. It is safe for concurrent use.
func (s Span) Fail(description string) {
	if s.span != nil {
		s.span.SetStatus(codes.Error, description)
	}
}

// StartRail starts the span of a rail call, such as debit, for a number of rows.
func (t *Tracer) StartRail(ctx context.Context, call string, rows int) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, "rail "+call, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.Int("svc.rows", rows)))
	return ctx, Span{span}
}

// StartWebhook starts the span of an attempt to deliver a webhook event.
func (t *Tracer) StartWebhook(ctx context.Context, d *models.WebhookDelivery) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, "webhook "+string(d.Event.Type), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("svc.event.id", d.Event.ID.String()), attribute.Int("svc.webhook.attempt", d.Number)))
	return ctx, Span{span}
}

// Answered records the HTTP status of an answer on the span. It records nothing if the status is 0.
func (s Span) Answered(status int) {
	if s.span != nil && status != 0 {
		s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
}

// Inject adds the traceparent header (W3C Trace Context) of the context's span, if the span is
// recorded. Otherwise Inject adds nothing, so that the receiver decides by itself whether to record
// a trace.
func Inject(ctx context.Context, header http.Header) {
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		header.Set("Traceparent", "00-"+span.TraceID().String()+"-"+span.SpanID().String()+"-01")
	}
}
