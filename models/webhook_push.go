package models

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// TransactionStatusPush is the notification of a payment intent's final status. Its JSON is the
// notification's data object.
type TransactionStatusPush struct {
	IdempotencyKey               WebhookEventID  `json:"idempotencyKey"` // set when the event is written
	SiteID                       PushSite        `json:"siteId"`
	PaymentIntentID              PaymentIntentID `json:"paymentIntentId"`
	TransactionID                TransactionID   `json:"transactionId,omitzero"` // if the customer began to pay
	TransactionStatus            string          `json:"transactionStatus"`
	TransactionStatusDescription string          `json:"transactionStatusDescription,omitzero"`
	TransactionUpdated           Millis          `json:"transactionUpdated,omitzero"` // if the customer began to pay
	OrderID                      string          `json:"orderId,omitzero"`
	LineItems                    []PushLineItem  `json:"lineItems,omitempty"`
	AmountPaid                   *Amount         `json:"amountPaid,omitzero"` // of a settled transaction; may be 0
}

// PushSite is a Site in a notification.
type PushSite struct {
	ID SiteID `json:"id"`
}

// PushLineItem is one line of the purchase. Amounts are in cents.
type PushLineItem struct {
	ItemID         string         `json:"itemId"`
	Quantity       int64          `json:"quantity"`
	AmountPerUnit  Amount         `json:"amountPerUnit"`
	AmountSubtotal Amount         `json:"amountSubtotal"`
	AddOns         *PushAddOns    `json:"addOns,omitzero"`
	AmountTotal    Amount         `json:"amountTotal"` // after discounts
	Discounts      []PushDiscount `json:"discounts,omitempty"`
}

// PushAddOns describes additions to a line.
type PushAddOns struct {
	Customizations string   `json:"customizations,omitzero"`
	Modifiers      []string `json:"modifiers,omitempty"`
}

// PushDiscount is a discount on a line.
type PushDiscount struct {
	Amount Amount `json:"amount"`
	Reason string `json:"reason"`
}

// id is the idempotency key of a final status.
func (p *TransactionStatusPush) id() WebhookEventID {
	return webhookEventIDOf(p.PaymentIntentID, EventTransactionStatus, p.TransactionStatus)
}

// body encodes the notification that every attempt sends. It escapes only what JSON requires, so
// that <, >, & and U+2028 stay as they are. Only a test carries the test flag.
func (p *TransactionStatusPush) body(trace TraceID, test bool) ([]byte, error) {
	body, err := json.Marshal(struct {
		Data    *TransactionStatusPush `json:"data"`
		TraceID TraceID                `json:"traceId"`
		Test    bool                   `json:"test,omitzero"`
	}{p, trace, test})
	if err != nil {
		return nil, fmt.Errorf("models: write the notification of %s: %w", p.PaymentIntentID, err)
	}
	return body, nil
}
