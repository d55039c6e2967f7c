package client

import (
	"context"
	"net/http"
)

// Trace is the current state of what a request stored and caused.
type Trace struct {
	TraceID       string         `json:"traceId"`
	At            int64          `json:"at"`                      // Unix ms; when the request was stored
	Kind          string         `json:"kind"`                    // batch, paymentIntent, invitation or testEvent
	Batch         *BatchStatus   `json:"batch,omitempty"`         // without rows; batches only
	PaymentIntent *PaymentIntent `json:"paymentIntent,omitempty"` // payment intents only
	Customer      *CustomerLink  `json:"customer,omitempty"`      // invitations only
	Rows          map[string]int `json:"rows,omitempty"`          // settled rows by outcome; batches only
	Attempts      *int           `json:"attempts,omitempty"`      // debit calls; batches and payment intents only
	Events        []TraceEvent   `json:"events"`                  // oldest first
}

// TraceEvent is a webhook event of a trace.
type TraceEvent struct {
	IdempotencyKey string `json:"idempotencyKey"`
	Type           string `json:"type"`
	Status         string `json:"status"`   // pending, delivered, failed or undelivered
	Attempts       int    `json:"attempts"` // deliveries attempted
}

// Trace returns the trace of a request that submitted a batch, created a payment intent or an
// invitation, or tested an endpoint. A request that stored nothing has no trace: Trace returns an
// *Error with the code requests:trace-not-found.
func (c *Client) Trace(ctx context.Context, traceID string) (Trace, error) {
	var out Trace
	_, err := c.do(ctx, request{method: http.MethodGet, path: path("traces", traceID), repeatable: true}, &out)
	return out, err
}
