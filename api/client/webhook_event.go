package client

import (
	"context"
	"iter"
	"net/http"
)

// WebhookEvent is an event with the state of its delivery. Times are in Unix ms.
type WebhookEvent struct {
	IdempotencyKey    string `json:"idempotencyKey"`
	Type              string `json:"type"`
	SiteID            string `json:"siteId"`
	PaymentIntentID   string `json:"paymentIntentId,omitempty"`   // of EventTransactionStatus
	TransactionStatus string `json:"transactionStatus,omitempty"` // of EventTransactionStatus
	Test              bool   `json:"test,omitempty"`
	Status            string `json:"status"` // pending, delivered, failed or undelivered
	AttemptCount      int    `json:"attemptCount"`
	CreatedAt         int64  `json:"createdAt"`
	RequestedAt       int64  `json:"requestedAt"`             // of the latest request for a redelivery, else CreatedAt
	NextAttemptAt     int64  `json:"nextAttemptAt,omitempty"` // 0: no attempt is planned
	DeliveredAt       int64  `json:"deliveredAt,omitempty"`   // 0 until delivered

	// Only Client.WebhookEvent fills in the fields below.

	Body       string           `json:"body,omitempty"` // the signed bytes
	BodySHA256 string           `json:"bodySha256,omitempty"`
	Attempts   []WebhookAttempt `json:"attempts,omitempty"` // oldest first
}

// WebhookAttempt is an attempt to deliver an event.
type WebhookAttempt struct {
	Number       int    `json:"number"`   // from 1
	Endpoint     string `json:"endpoint"` // DefaultEndpoint or a siteId
	URL          string `json:"url"`
	StartedAt    int64  `json:"startedAt"` // Unix ms
	DurationMs   int64  `json:"durationMs"`
	StatusCode   int    `json:"statusCode,omitempty"`   // 0 without an answer
	Address      string `json:"address,omitempty"`      // the IP address and port that was tried
	Error        string `json:"error,omitempty"`        // why the attempt failed; "" for a success
	ResponseHead string `json:"responseHead,omitempty"` // status line, headers, start of the body: at most 2 KiB
}

// WebhookEventFilter selects events. The zero value selects all.
type WebhookEventFilter struct {
	Status          string `json:"status,omitempty"` // such as failed; see WebhookEvent
	Type            string `json:"type,omitempty"`   // such as EventTransactionStatus
	SiteID          string `json:"siteId,omitempty"`
	PaymentIntentID string `json:"paymentIntentId,omitempty"`
	From            int64  `json:"from,omitempty"` // earliest CreatedAt, in Unix ms, inclusive
	To              int64  `json:"to,omitempty"`   // latest CreatedAt, in Unix ms, inclusive
	Limit           int    `json:"-"`              // items per page; 0: the API's default
}

// WebhookEvents iterates over the organisation's events, newest first. It fetches further pages as
// needed.
func (c *Client) WebhookEvents(ctx context.Context, filter WebhookEventFilter) iter.Seq2[WebhookEvent, error] {
	return list[WebhookEvent](ctx, c, "/webhooks/events"+query(
		map[string]string{
			"status": filter.Status, "type": filter.Type, "siteId": filter.SiteID,
			"paymentIntentId": filter.PaymentIntentID,
		},
		map[string]int64{"from": filter.From, "to": filter.To, "limit": int64(filter.Limit)}))
}

// WebhookEvent returns an event with its body and every attempt.
func (c *Client) WebhookEvent(ctx context.Context, idempotencyKey string) (WebhookEvent, error) {
	var out WebhookEvent
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("webhooks", "events", idempotencyKey), repeatable: true,
	}, &out)
	return out, err
}

// RedeliverWebhookEvent schedules an event for another delivery, whatever its status. Without an
// enabled endpoint, the event becomes undelivered. Each call causes a delivery, so the client does
// not retry a call without a response.
func (c *Client) RedeliverWebhookEvent(ctx context.Context, idempotencyKey string) (WebhookEvent, error) {
	var out WebhookEvent
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("webhooks", "events", idempotencyKey, "redelivery"),
	}, &out)
	return out, err
}

// Redelivery is the result of a redelivery by filter.
type Redelivery struct {
	// Count is the number of redelivered events. It includes events without an enabled endpoint,
	// which become undelivered.
	Count int `json:"count"`
	// ResumeFrom is the CreatedAt of the oldest matching event that was left out, in Unix ms; 0: no
	// event was. Once fewer events are pending, a call with ResumeFrom as From continues.
	ResumeFrom int64 `json:"resumeFrom"`
}

// RedeliverWebhookEvents schedules matching events for another delivery, oldest first, until the
// organisation has too many pending events. It leaves out test events. The filter must not be
// empty; its Limit is ignored.
// Each call causes deliveries, so the client does not retry a call without a response.
func (c *Client) RedeliverWebhookEvents(ctx context.Context, filter WebhookEventFilter) (Redelivery, error) {
	var out Redelivery
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: "/webhooks/events/redelivery", body: filter,
	}, &out)
	return out, err
}
