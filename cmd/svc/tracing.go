package main

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/models/tracing"
)

// flushTimeout bounds the export of the last spans at shutdown.
const flushTimeout = 5 * time.Second

// tracerProvider returns the provider that sends spans to the collector of SVC_OTLP_URL. It returns
// nil if no collector is configured. All parts of the process share the provider.
func (s *service) tracerProvider(ctx context.Context) (trace.TracerProvider, error) {
	if s.cfg.OTLPURL == "" || s.spans != nil {
		return s.spans, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.cfg.OTLPURL+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("SVC_OTLP_URL: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		s.log.Warn("spans were not sent", logs.OutageOf(logs.Collector), "error", err)
	}))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithIDGenerator(tracing.SpanIDs{}),
		sdktrace.WithSampler(sampler{sdktrace.TraceIDRatioBased(s.cfg.OTLPRatio)}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "partnerbilling"), attribute.String("service.version", version()),
			attribute.String("deployment.environment.name", string(s.cfg.Env)))),
	)
	s.closers = append(s.closers, func() error {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		return provider.Shutdown(end)
	})
	s.spans = provider
	return provider, nil
}

// tracer returns a tracer of tracerProvider. It returns nil if no collector is configured.
func (s *service) tracer(ctx context.Context) (*tracing.Tracer, error) {
	provider, err := s.tracerProvider(ctx)
	return tracing.New(provider), err
}

// sampler decides which spans are sent. It samples by the id of the request's own trace, so that
// all processes with the same ratio sample the same traces. If the request is part of a caller's
// trace that is not sampled, it drops the span. A caller can thus suppress spans, but cannot cause
// more than the ratio allows.
type sampler struct{ byTraceID sdktrace.Sampler }

// ShouldSample implements sdktrace.Sampler.
func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent, own := trace.SpanContextFromContext(p.ParentContext), p.TraceID
	if id, err := trace.TraceIDFromHex(string(models.TraceIDFrom(p.ParentContext))); err == nil {
		own = id
	}
	if parent.IsValid() && !parent.IsSampled() {
		return sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: parent.TraceState()}
	}
	p.TraceID = own
	return s.byTraceID.ShouldSample(p)
}

// Description implements sdktrace.Sampler.
func (s sampler) Description() string { return "ByRequest{" + s.byTraceID.Description() + "}" }
