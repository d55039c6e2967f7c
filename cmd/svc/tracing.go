package main

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"partnerbilling/api"
)

// flushTimeout bounds the export of the last spans at shutdown.
const flushTimeout = 5 * time.Second

// tracer returns a provider that sends spans to the configured collector, or a no-op provider
// without one.
func (s *service) tracer(ctx context.Context) (trace.TracerProvider, error) {
	if s.cfg.OTLPURL == "" {
		return noop.NewTracerProvider(), nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.cfg.OTLPURL+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("SVC_OTLP_URL: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithIDGenerator(api.SpanIDs{}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "partnerbilling"),
			attribute.String("deployment.environment.name", string(s.cfg.Env)))),
	)
	s.closers = append(s.closers, func() error {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		return provider.Shutdown(end)
	})
	return provider, nil
}
