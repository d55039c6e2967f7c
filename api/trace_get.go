package api

import (
	"context"
	"errors"
	"net/http"

	"partnerbilling/models"
)

// traces handles the route that shows what an earlier request has stored, by its traceId.
type traces struct {
	store  *models.Store
	qrBase string // see the function qrBase
}

func newTraces(cfg Config) *traces {
	return &traces{store: cfg.Store, qrBase: qrBase(cfg.PublicBaseURL)}
}

// checkTraceID refuses a malformed traceId. The route answers it like an unknown one.
func checkTraceID(text string) error {
	_, err := models.ParseTraceID(text)
	return err
}

// traceData is a trace on the wire. It has exactly one of Batch, PaymentIntent and Customer, or
// none of them for a test event. Rows counts the settled rows of a batch by outcome. Attempts
// counts the debit calls of a batch or payment intent.
type traceData struct {
	TraceID       models.TraceID            `json:"traceId"`
	At            models.Millis             `json:"at"`
	Kind          models.TraceKind          `json:"kind"`
	Batch         *models.BatchSummary      `json:"batch,omitempty"`
	PaymentIntent *paymentIntentData        `json:"paymentIntent,omitempty"`
	Customer      *models.CustomerSummary   `json:"customer,omitempty"`
	Rows          map[models.RowOutcome]int `json:"rows,omitempty"`
	Attempts      *int                      `json:"attempts,omitempty"` // may be 0
	Events        []traceEvent              `json:"events"`
}

// traceEvent summarises an event of a trace. GET /webhooks/events/{idempotencyKey} returns all of
// it.
type traceEvent struct {
	IdempotencyKey models.WebhookEventID   `json:"idempotencyKey"`
	Type           models.WebhookEventType `json:"type"`
	Status         models.WebhookStatus    `json:"status"`
	Attempts       int                     `json:"attempts"`
}

// describe returns a trace as the answer shows it.
func (t *traces) describe(trace *models.Trace) traceData {
	data := traceData{
		TraceID: trace.ID, At: trace.At, Kind: trace.Kind, Rows: trace.Rows,
		Events: make([]traceEvent, len(trace.Events)),
	}
	switch {
	case trace.Batch != nil:
		batch := trace.Batch.Summary()
		data.Batch, data.Attempts = &batch, &trace.Attempts
	case trace.Intent != nil:
		intent := describeIntent(t.qrBase, trace.Intent)
		data.PaymentIntent, data.Attempts = &intent, &trace.Attempts
	case trace.Link != nil:
		customer := trace.Link.Summary()
		data.Customer = &customer
	}
	for i := range trace.Events {
		e := &trace.Events[i]
		data.Events[i] = traceEvent{IdempotencyKey: e.ID, Type: e.Type, Status: e.Status, Attempts: e.Attempts}
	}
	return data
}

// get answers with the trace whose traceId is in the path.
func (t *traces) get(ctx context.Context, r *Request) error {
	trace, err := t.store.Trace(ctx, r.Principal.OrganisationID, models.TraceID(r.Param()))
	if errors.Is(err, models.ErrNotFound) {
		return Refuse(TraceNotFound, r.route.Param.Name)
	}
	if err != nil {
		return err
	}
	return r.JSON(http.StatusOK, t.describe(&trace))
}
