package models

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
)

// TransactionStatusPush is the notification of a payment intent's final status. Its JSON is the
// notification's data object. TransactionUpdated is when the final status was set.
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

// PushSite names a Site in a notification.
type PushSite struct {
	ID SiteID `json:"id"`
}

// PushLineItem is one line of the purchase. Amounts are in minor units.
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
	Amount Amount `json:"amount"` // in minor units
	Reason string `json:"reason"`
}

// id derives the idempotency key from the payment intent and its final status.
func (p *TransactionStatusPush) id() WebhookEventID {
	return webhookEventIDOf(p.PaymentIntentID, EventTransactionStatus, p.TransactionStatus)
}

// body encodes the notification, which every attempt sends byte for byte. It escapes only what JSON
// requires, so that <, >, & and U+2028 stay as they are. Only a test carries the test flag.
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

// notice is a notification of any type except EventTransactionStatus.
type notice struct {
	event WebhookEventType
	site  SiteID
	trace TraceID // of the request that made the batch or the invitation
	id    WebhookEventID
	noun  noticeNoun
}

// noticeNoun is the subject of a notice, encoded as the API encodes it in a GET. Set are either
// Batch, or BatchReference and Row, or Customer.
type noticeNoun struct {
	Batch          *BatchSummary    `json:"batch,omitempty"`
	BatchReference string           `json:"batchReference,omitempty"`
	Row            *BatchRowSummary `json:"row,omitempty"`
	Customer       *CustomerSummary `json:"customer,omitempty"`
}

// batchSettled returns the notice of a settled batch. Its id depends on the batch's result: after a
// loss of the database, the batch may settle with another result, which is another event.
func batchSettled(b *Batch, trace TraceID) notice {
	summary := b.Summary()
	return notice{
		event: EventBatchSettled, site: b.SiteID, trace: trace, noun: noticeNoun{Batch: &summary},
		id: webhookEventIDOf(b.ID, EventBatchSettled, strconv.Itoa(b.Counts.Succeeded),
			strconv.FormatInt(int64(b.SucceededAmount), 10)),
	}
}

// rowCorrected returns the notice of a correction to a settled row.
func rowCorrected(b *Batch, r *BatchRow, trace TraceID) notice {
	summary := r.Summary()
	return notice{
		event: EventRowCorrected, site: b.SiteID, trace: trace,
		noun: noticeNoun{BatchReference: b.Reference, Row: &summary},
		id:   webhookEventIDOf(b.ID, EventRowCorrected, r.RowReference, string(r.CorrectedOutcome)),
	}
}

// customerChanged returns the notice of a link that has changed to its State: linked, revoked or
// expired.
func customerChanged(l *CustomerLink) notice {
	event := map[LinkState]WebhookEventType{
		LinkLinked: EventCustomerLinked, LinkRevoked: EventCustomerRevoked, LinkExpired: EventCustomerExpired,
	}[l.State]
	summary := l.Summary()
	return notice{
		event: event, site: l.SiteID, trace: l.TraceID, noun: noticeNoun{Customer: &summary},
		id: webhookEventIDOf(l.ID, event, string(l.State)),
	}
}

// body encodes the notification, which every attempt sends byte for byte.
func (n *notice) body() ([]byte, error) {
	type data struct {
		IdempotencyKey WebhookEventID `json:"idempotencyKey"`
		SiteID         PushSite       `json:"siteId"`
		noticeNoun
	}
	body, err := EncodeJSON(struct {
		Type    WebhookEventType `json:"type"`
		Data    data             `json:"data"`
		TraceID TraceID          `json:"traceId"`
	}{n.event, data{n.id, PushSite{n.site}, n.noun}, n.trace})
	if err != nil {
		return nil, fmt.Errorf("models: write the notification %s: %w", n.id, err)
	}
	return body, nil
}
