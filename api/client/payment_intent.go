package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// NewPaymentIntent is a payment intent to create.
type NewPaymentIntent struct {
	Amount       int64      `json:"amount"` // minor units, at least 1
	OrderID      string     `json:"orderId,omitempty"`
	QRCodeFormat string     `json:"qrCodeFormat,omitempty"` // base64 (default) or text
	LineItems    []LineItem `json:"lineItems,omitempty"`
	ExpiresAt    int64      `json:"expiresAt,omitempty"` // Unix ms; 0: in 15 minutes
	ReturnURL    string     `json:"returnUrl,omitempty"` // where the hosted page leads once the status is final
}

// LineItem is an item of a purchase. Amounts are in minor units.
type LineItem struct {
	ItemID         string  `json:"itemId"`
	Quantity       int64   `json:"quantity"`
	AmountPerUnit  int64   `json:"amountPerUnit"`
	AmountSubtotal int64   `json:"amountSubtotal"`
	AddOns         *AddOns `json:"addOns,omitempty"`
}

// AddOns describes the add-ons of a line item.
type AddOns struct {
	Customizations string   `json:"customizations,omitempty"`
	Modifiers      []string `json:"modifiers,omitempty"`
}

// CreatedPaymentIntent is a newly created payment intent.
type CreatedPaymentIntent struct {
	PaymentIntentID string `json:"paymentIntentId"`
	QRCode          string `json:"qrCode"` // a data URI of a PNG, or the text to encode
	OrderID         string `json:"orderId"`
	TraceID         string `json:"-"` // for Client.Trace
}

// PaymentIntent is the state of a payment intent. Amounts are in minor units, times in Unix ms.
type PaymentIntent struct {
	PaymentIntentID   string     `json:"paymentIntentId"`
	Amount            int64      `json:"amount"`
	Currency          string     `json:"currency"`
	OrderID           string     `json:"orderId"`
	LineItems         []LineItem `json:"lineItems"`
	State             string     `json:"state"`             // created, pending or final
	TransactionStatus string     `json:"transactionStatus"` // once final, such as StatusSettled
	TransactionID     string     `json:"transactionId"`     // once a customer has started to pay
	AmountPaid        int64      `json:"amountPaid"`        // if Settled
	PaymentURL        string     `json:"paymentUrl"`        // the text of the QR code
	ReturnURL         string     `json:"returnUrl"`
	CreatedAt         int64      `json:"createdAt"`
	ExpiresAt         int64      `json:"expiresAt"`
}

// PaymentIntentFilter selects payment intents of a list. The zero value selects all.
type PaymentIntentFilter struct {
	OrderID           string
	State             string // IntentCreated, IntentPending or IntentFinal
	TransactionStatus string // such as StatusSettled
	CreatedFrom       int64  // Unix ms, inclusive
	CreatedTo         int64  // Unix ms, inclusive
	Limit             int    // items per page; 0: the API's default
}

// PaymentIntents iterates over the payment intents of a Site, newest first. It fetches further
// pages as needed.
func (c *Client) PaymentIntents(
	ctx context.Context, site string, filter PaymentIntentFilter,
) iter.Seq2[PaymentIntent, error] {
	return list[PaymentIntent](ctx, c, path("checkout", site, "payment-intent")+query(
		map[string]string{
			"orderId": filter.OrderID, "state": filter.State, "transactionStatus": filter.TransactionStatus,
		},
		map[string]int64{
			"createdFrom": filter.CreatedFrom, "createdTo": filter.CreatedTo, "limit": int64(filter.Limit),
		}))
}

// CreatePaymentIntent creates a payment intent. The client retries the request with the idempotency
// key, or with a random one for "". A caller with retries of its own passes the same key each time.
func (c *Client) CreatePaymentIntent(
	ctx context.Context, site string, in NewPaymentIntent, idempotencyKey string,
) (CreatedPaymentIntent, error) {
	var out CreatedPaymentIntent
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("checkout", site, "payment-intent"), body: in,
		header: idempotent(idempotencyKey), repeatable: true,
	}, &out)
	out.TraceID = answer.trace
	return out, err
}

// PaymentIntent returns a payment intent. It waits for the final state first, but not longer than
// wait, rounded down to whole seconds.
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

// AwaitPaymentIntent waits until a payment intent is final. If ctx ends first, it returns the last
// known state with an error.
func (c *Client) AwaitPaymentIntent(ctx context.Context, site, id string) (PaymentIntent, error) {
	return await(ctx, c, path("checkout", site, "payment-intent", id), func(p *PaymentIntent) bool {
		return p.State == IntentFinal
	})
}

// CancelPaymentIntent cancels a payment intent that no customer has started to pay, and returns it.
func (c *Client) CancelPaymentIntent(ctx context.Context, site, id string) (PaymentIntent, error) {
	var out PaymentIntent
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("checkout", site, "payment-intent", id, "cancellation"),
	}, &out)
	return out, err
}

// PayInSandbox simulates a customer of the sandbox who scans and pays. behaviour selects how the
// customer's account behaves, such as "slow"; with "" the payment succeeds. It returns the
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
