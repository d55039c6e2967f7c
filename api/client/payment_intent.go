package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// NewPaymentIntent asks for a payment.
type NewPaymentIntent struct {
	Amount       int64      `json:"amount"` // minor units, at least 1
	OrderID      string     `json:"orderId,omitempty"`
	QRCodeFormat string     `json:"qrCodeFormat,omitempty"` // base64 (default) or text
	LineItems    []LineItem `json:"lineItems,omitempty"`
	ExpiresAt    int64      `json:"expiresAt,omitempty"` // Unix ms; 0: in 15 minutes
}

// LineItem is one line of a purchase.
type LineItem struct {
	ItemID         string  `json:"itemId"`
	Quantity       int64   `json:"quantity"`
	AmountPerUnit  int64   `json:"amountPerUnit"`
	AmountSubtotal int64   `json:"amountSubtotal"`
	AddOns         *AddOns `json:"addOns,omitempty"`
}

// AddOns describe what was added to a line.
type AddOns struct {
	Customizations string   `json:"customizations,omitempty"`
	Modifiers      []string `json:"modifiers,omitempty"`
}

// CreatedPaymentIntent is a payment intent as it was created.
type CreatedPaymentIntent struct {
	PaymentIntentID string `json:"paymentIntentId"`
	QRCode          string `json:"qrCode"` // a data URI of a PNG, or the text to encode
	OrderID         string `json:"orderId"`
	TraceID         string `json:"-"` // of the request: Trace says what it led to
}

// PaymentIntent is a payment intent and how far it is.
type PaymentIntent struct {
	PaymentIntentID   string     `json:"paymentIntentId"`
	Amount            int64      `json:"amount"`
	Currency          string     `json:"currency"`
	OrderID           string     `json:"orderId"`
	LineItems         []LineItem `json:"lineItems"`
	State             string     `json:"state"`             // created, pending or final
	TransactionStatus string     `json:"transactionStatus"` // once final
	TransactionID     string     `json:"transactionId"`     // once a customer has begun to pay
	AmountPaid        int64      `json:"amountPaid"`        // if Settled
	CreatedAt         int64      `json:"createdAt"`
	ExpiresAt         int64      `json:"expiresAt"`
}

// CreatePaymentIntent makes a payment intent. With an idempotency key it may be repeated safely, by the client too.
func (c *Client) CreatePaymentIntent(
	ctx context.Context, site string, in NewPaymentIntent, idempotencyKey string,
) (CreatedPaymentIntent, error) {
	var out CreatedPaymentIntent
	header := http.Header{}
	if idempotencyKey != "" {
		header.Set("Idempotency-Key", idempotencyKey)
	}
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("checkout", site, "payment-intent"), body: in, header: header,
		repeatable: idempotencyKey != "",
	}, &out)
	out.TraceID = answer.trace
	return out, err
}

// PaymentIntent reads a payment intent, and waits up to wait for it to become final.
func (c *Client) PaymentIntent(ctx context.Context, site, id string, wait time.Duration) (PaymentIntent, error) {
	var out PaymentIntent
	header := http.Header{}
	if wait >= time.Second {
		header.Set("Prefer", fmt.Sprintf("wait=%d", int(wait.Seconds())))
	}
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("checkout", site, "payment-intent", id), header: header, repeatable: true,
	}, &out)
	return out, err
}

// CancelPaymentIntent ends a payment intent that nobody has begun to pay.
func (c *Client) CancelPaymentIntent(ctx context.Context, site, id string) (PaymentIntent, error) {
	var out PaymentIntent
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("checkout", site, "payment-intent", id, "cancellation"),
	}, &out)
	return out, err
}

// PayInSandbox lets a customer of the sandbox scan and pay, with an account that behaves as told ("" pays). It returns the
// transaction's id.
func (c *Client) PayInSandbox(ctx context.Context, id, behaviour string) (string, error) {
	body := map[string]string{}
	if behaviour != "" {
		body["behaviour"] = behaviour
	}
	var out struct {
		TransactionID string `json:"transactionId"`
	}
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("sandbox", "payment-intents", id, "payment"), body: body,
	}, &out)
	return out.TransactionID, err
}
