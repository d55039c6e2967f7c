package models

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// TransactionStatusPush is what an event tells: the final status of a payment intent. Its JSON is the data object of the
// notification.
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

// PushSite is a Site as a notification has it.
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

// PushAddOns describes what was added to a line.
type PushAddOns struct {
	Customizations string   `json:"customizations,omitzero"`
	Modifiers      []string `json:"modifiers,omitempty"`
}

// PushDiscount is a discount on a line.
type PushDiscount struct {
	Amount Amount `json:"amount"`
	Reason string `json:"reason"`
}

// id is the key of the notification of a final status.
func (p *TransactionStatusPush) id() WebhookEventID {
	return webhookEventIDOf(p.PaymentIntentID, EventTransactionStatus, p.TransactionStatus)
}

// body writes the notification as every attempt sends it. It escapes nothing that JSON does not demand, so that <, >, &
// and U+2028 stay as they are. Only a test says that it is one.
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
