package tracing_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/tracing"
)

// Without a collector tracing allocates nothing.
func TestOffAllocatesNothing(t *testing.T) {
	var off *tracing.Tracer
	ctx, header := models.WithTraceID(context.Background(), models.NewTraceID()), http.Header{}
	tasks := []models.Task{{ID: models.TaskID{1}, TraceID: models.TraceIDFrom(ctx)}}
	delivery, began := &models.WebhookDelivery{}, time.Now()
	if n := testing.AllocsPerRun(100, func() {
		ctx, request := off.StartRequest(ctx, http.MethodPost, "")
		off.Dispatched(ctx, tasks, began, true)
		ctx, bundle := off.StartBundle(ctx, tasks)
		ctx, task := off.StartTask(ctx, tasks[0])
		ctx, call := off.StartRail(ctx, "debit", 100)
		call.Fail("no final answer")
		call.End(nil)
		ctx, webhook := off.StartWebhook(ctx, delivery)
		tracing.Inject(ctx, header)
		webhook.Answered(http.StatusOK)
		webhook.End(nil)
		task.End(nil)
		bundle.End(nil)
		request.End(tracing.Answer{Status: http.StatusAccepted})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(header) != 0 {
		t.Errorf("header %v", header)
	}
}
