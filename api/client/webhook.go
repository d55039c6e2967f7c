package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// TransactionStatus is the data of an event of the type EventTransactionStatus.
type TransactionStatus struct {
	IdempotencyKey string `json:"idempotencyKey"`
	SiteID         struct {
		ID string `json:"id"`
	} `json:"siteId"`
	PaymentIntentID              string `json:"paymentIntentId"`
	TransactionID                string `json:"transactionId"`     // "" if no customer started to pay
	TransactionStatus            string `json:"transactionStatus"` // such as Settled
	TransactionStatusDescription string `json:"transactionStatusDescription"`
	// when the status became final, in Unix ms; 0 if no customer started to pay
	TransactionUpdated int64              `json:"transactionUpdated"`
	OrderID            string             `json:"orderId"`
	LineItems          []NotifiedLineItem `json:"lineItems"`
	AmountPaid         int64              `json:"amountPaid"` // minor units
}

// NotifiedLineItem is a line item with its discounts. Amounts are in minor units.
type NotifiedLineItem struct {
	LineItem
	AmountTotal int64      `json:"amountTotal"` // AmountSubtotal less the discounts
	Discounts   []Discount `json:"discounts"`
}

// Discount is a discount of a line item.
type Discount struct {
	Amount int64  `json:"amount"` // minor units
	Reason string `json:"reason"`
}

// Event is a webhook event of any type. An event may arrive more than once, always with the same
// IdempotencyKey.
type Event struct {
	Type           string // such as EventTransactionStatus
	IdempotencyKey string
	SiteID         string
	TraceID        string // of the request that created the subject
	Test           bool   // a test of the endpoint: its payment intent does not exist

	Status         *TransactionStatus // of EventTransactionStatus
	Batch          *BatchStatus       // of EventBatchSettled, without rows
	BatchReference string             // of EventRowCorrected
	Row            *RowStatus         // of EventRowCorrected
	Customer       *CustomerLink      // of the customer events
}

// ParseEvent verifies a webhook under one of the secrets and decodes it. During a rotation there
// are two secrets. body is the unchanged request body. A secret is the whole text that the service
// returned, whsec_ included.
//
// ParseEvent verifies the header webhook-signature, which also covers the time of signing. The
// error wraps ErrSignature if no secret has made the signature, or if the header is missing. It
// wraps ErrStale if the time of signing differs from now by more than WebhookTolerance. Any other
// error means that the body is unreadable. For an event of an unknown type, use only the common
// fields.
func ParseEvent(header http.Header, body []byte, secrets ...string) (Event, error) {
	if err := verify(header, body, secrets); err != nil {
		return Event{}, err
	}
	return decodeEvent(body)
}

// ParseEventBodySignature parses as ParseEvent does, but verifies only the header x-svc-signature.
// It is for receivers that get no other header. That signature does not cover the time, so an
// intercepted webhook can be sent again at any time. The receiver must remember each IdempotencyKey
// for good.
func ParseEventBodySignature(header http.Header, body []byte, secrets ...string) (Event, error) {
	if err := verifyBody(header, body, secrets); err != nil {
		return Event{}, err
	}
	return decodeEvent(body)
}

func decodeEvent(body []byte) (Event, error) {
	var envelope struct {
		Type    string          `json:"type"` // absent: EventTransactionStatus
		Data    json.RawMessage `json:"data"`
		TraceID string          `json:"traceId"`
		Test    bool            `json:"test"`
	}
	var data struct {
		IdempotencyKey string              `json:"idempotencyKey"`
		SiteID         struct{ ID string } `json:"siteId"`
		Batch          *BatchStatus        `json:"batch"`
		BatchReference string              `json:"batchReference"`
		Row            *RowStatus          `json:"row"`
		Customer       *CustomerLink       `json:"customer"`
	}
	if err := decode("the webhook", body, &envelope); err != nil {
		return Event{}, err
	}
	if err := json.Unmarshal(envelope.Data, &data); err != nil {
		return Event{}, fmt.Errorf("client: webhook: %w", err)
	}
	event := Event{
		Type: envelope.Type, IdempotencyKey: data.IdempotencyKey, SiteID: data.SiteID.ID, TraceID: envelope.TraceID,
		Test: envelope.Test, Batch: data.Batch, BatchReference: data.BatchReference, Row: data.Row,
		Customer: data.Customer,
	}
	if event.Type == "" {
		event.Type, event.Status = EventTransactionStatus, &TransactionStatus{}
		if err := json.Unmarshal(envelope.Data, event.Status); err != nil {
			return Event{}, fmt.Errorf("client: webhook: %w", err)
		}
	}
	return event, nil
}

// maxEvent is the maximum size of a webhook or of a line of a stream, in bytes.
const maxEvent = 1 << 20

// WebhookHandler parses each webhook with ParseEvent, and calls handle with the event. It answers
// 204 if handle returns nil. If handle fails, it answers 500, so that the service sends the event
// again. It answers 401 to ErrSignature and ErrStale, and 400 to an unreadable body. handle must
// ignore an event whose IdempotencyKey it has processed.
func WebhookHandler(handle func(context.Context, Event) error, secrets ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
		if err != nil {
			http.Error(w, "unreadable", http.StatusBadRequest)
			return
		}
		event, err := ParseEvent(r.Header, body, secrets...)
		switch {
		case errors.Is(err, ErrSignature):
			http.Error(w, "not signed by the service", http.StatusUnauthorized)
		case errors.Is(err, ErrStale):
			http.Error(w, "signed too long ago", http.StatusUnauthorized)
		case err != nil:
			http.Error(w, "unreadable", http.StatusBadRequest)
		case handle(r.Context(), event) != nil:
			http.Error(w, "not processed", http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
}
