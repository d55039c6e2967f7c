package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"partnerbilling/models"
)

// RequestSpan is the span of a request: the root of the request's own trace. If the caller has a
// trace, a second span continues it. The zero RequestSpan records nothing.
type RequestSpan struct{ root, continued trace.Span }

// StartRequest starts the span of a request whose models.TraceID is in ctx. The span bears the name
// of the HTTP method until End. traceparent is the caller's header, "" without one. StartRequest
// ignores a malformed header. Spans that start from the returned context belong to the request's
// own trace.
func (t *Tracer) StartRequest(ctx context.Context, method, traceparent string) (context.Context, RequestSpan) {
	if t == nil {
		return ctx, RequestSpan{}
	}
	var s RequestSpan
	caller := RemoteSpan(traceparent)
	if !caller.IsValid() {
		ctx, s.root = t.tracer.Start(ctx, method, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer))
		return ctx, s
	}
	ctx, s.root = t.tracer.Start(ctx, method, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: caller}))
	_, s.continued = t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, caller), method,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithLinks(trace.Link{SpanContext: s.root.SpanContext()}))
	return ctx, s
}

// RemoteSpan parses a traceparent header (W3C Trace Context). The result is not valid if the header
// is empty or malformed.
func RemoteSpan(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": traceparent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// Answer describes a request's answer for the request's span.
type Answer struct {
	Method, Route string         // HTTP method, and path pattern
	Status        int            // HTTP status
	TraceID       models.TraceID // the request's own
	Failed        bool           // by the service's own fault
}

// End names the span after the method and route, describes the answer and ends the span.
func (s RequestSpan) End(a Answer) {
	if s.root == nil {
		return
	}
	for _, span := range []trace.Span{s.continued, s.root} {
		if span == nil {
			continue
		}
		span.SetName(a.Method + " " + a.Route)
		span.SetAttributes(attribute.String("http.request.method", a.Method), attribute.String("http.route", a.Route),
			attribute.Int("http.response.status_code", a.Status), attribute.String("svc.trace_id", string(a.TraceID)))
		if a.Failed {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
