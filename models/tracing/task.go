package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"partnerbilling/models"
)

// Dispatched records the spans of tasks that were sent to Redis together, from began to now.
// accepted says whether Redis accepted them; if not, the spans have failed. The next dispatch of a
// task has another epoch.
func (t *Tracer) Dispatched(ctx context.Context, tasks []models.Task, began time.Time, accepted bool) {
	if t == nil {
		return
	}
	for _, task := range tasks {
		id, ok := traceIDOf(task.TraceID)
		if !ok {
			continue
		}
		ctx := context.WithValue(parent(ctx, task.TraceID, id, rootSpanID(id)), spanIDKey{}, dispatchSpanID(task))
		_, span := t.tracer.Start(ctx, "dispatch "+string(task.Kind), trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithTimestamp(began), trace.WithAttributes(taskAttributes(task)...),
			trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(tasks))))
		if !accepted {
			Span{span}.Fail("not accepted by Redis")
		}
		span.End()
	}
}

// StartTask starts the span of a run of a task, in the trace of the request that caused the task.
// If ctx has the span of a bundle (see StartBundle), the task's span links to it. Work that no
// request caused has no span.
func (t *Tracer) StartTask(ctx context.Context, task models.Task) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	id, ok := traceIDOf(task.TraceID)
	if !ok {
		return ctx, Span{}
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(taskAttributes(task)...),
	}
	if bundle := trace.SpanContextFromContext(ctx); bundle.IsSampled() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: bundle}))
	}
	ctx, span := t.tracer.Start(parent(ctx, task.TraceID, id, dispatchSpanID(task)), string(task.Kind), options...)
	return ctx, Span{span}
}

// StartBundle starts the span of a bundle: tasks, at least one, that were dispatched or claimed
// together and run together. They belong to several traces, so the span begins a trace of its own,
// with a link to each task's dispatch.
func (t *Tracer) StartBundle(ctx context.Context, tasks []models.Task) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	links := make([]trace.Link, 0, len(tasks))
	for _, task := range tasks {
		if id, ok := traceIDOf(task.TraceID); ok {
			links = append(links, trace.Link{SpanContext: remote(id, dispatchSpanID(task))})
		}
	}
	ctx, span := t.tracer.Start(ctx, "bundle "+string(tasks[0].Kind), trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(tasks))))
	return ctx, Span{span}
}

func taskAttributes(t models.Task) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "asynq"),
		attribute.String("messaging.destination.name", string(t.Kind.Queue())),
		attribute.String("messaging.message.id", t.ID.String()), attribute.Int("svc.task.epoch", t.Epoch),
		attribute.String("svc.organisation.id", t.OrganisationID.String()),
	}
}

// parent returns a context whose next span belongs to the trace id, below a span of another
// process. own is the same trace id as text.
func parent(ctx context.Context, own models.TraceID, id trace.TraceID, span trace.SpanID) context.Context {
	return trace.ContextWithRemoteSpanContext(models.WithTraceID(ctx, own), remote(id, span))
}

// remote returns the context of a span of another process. Its flags say that the span is sampled,
// but the sampler ignores them.
func remote(id trace.TraceID, span trace.SpanID) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true,
	})
}
