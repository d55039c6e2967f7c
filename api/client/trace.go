package client

import (
	"context"
	"net/http"
)

// Trace is what a request stored, as it stands now, and what that led to.
type Trace struct {
	TraceID       string         `json:"traceId"`
	At            int64          `json:"at"`                      // Unix ms; when it was stored
	Kind          string         `json:"kind"`                    // batch, paymentIntent, invitation or testEvent
	Batch         *BatchStatus   `json:"batch,omitempty"`         // of a batch, without its rows
	PaymentIntent *PaymentIntent `json:"paymentIntent,omitempty"` // of a payment intent
	Customer      *Customer      `json:"customer,omitempty"`      // of an invitation
	Rows          map[string]int `json:"rows,omitempty"`          // of a batch: its settled rows by outcome
	Attempts      *int           `json:"attempts,omitempty"`      // of a batch or a payment intent: debit calls made
	Events        []TraceEvent   `json:"events"`                  // oldest first
}

// TraceEvent is a webhook event of a trace.
type TraceEvent struct {
	IdempotencyKey string `json:"idempotencyKey"`
	Type           string `json:"type"`
	Status         string `json:"status"`   // pending, delivered, failed or undelivered
	Attempts       int    `json:"attempts"` // to deliver it
}

// Trace reads what a request led to that submitted a batch, created a payment intent or an
// invitation, or tested an endpoint. A request that stored nothing has no trace: *Error with the
// code requests:trace-not-found.
func (c *Client) Trace(ctx context.Context, traceID string) (Trace, error) {
	var out Trace
	_, err := c.do(ctx, request{method: http.MethodGet, path: path("traces", traceID), repeatable: true}, &out)
	return out, err
}
