package models

import (
	"fmt"
	"strconv"
)

// notice is a notification of any type but EventTransactionStatus: its Site, and its noun as a GET shows it.
type notice struct {
	event WebhookEventType
	site  SiteID
	trace TraceID // of the request that made the batch or the invitation
	id    WebhookEventID
	noun  noticeNoun
}

// noticeNoun is what a notice tells of. Exactly one of Batch, Customer, and BatchReference with Row is set.
type noticeNoun struct {
	Batch          *BatchSummary    `json:"batch,omitempty"`
	BatchReference string           `json:"batchReference,omitempty"`
	Row            *BatchRowSummary `json:"row,omitempty"`
	Customer       *CustomerSummary `json:"customer,omitempty"`
}

// batchSettled tells that a batch has settled. Another result of the same batch is another event.
func batchSettled(b *Batch, trace TraceID) notice {
	summary := b.Summary()
	return notice{
		event: EventBatchSettled, site: b.SiteID, trace: trace, noun: noticeNoun{Batch: &summary},
		id: webhookEventIDOf(b.ID, EventBatchSettled, strconv.Itoa(b.Counts.Succeeded), strconv.FormatInt(int64(b.SucceededAmount), 10)),
	}
}

// rowCorrected tells that the truth about a settled row is another than its outcome.
func rowCorrected(b *Batch, r *BatchRow, trace TraceID) notice {
	summary := r.Summary()
	return notice{
		event: EventRowCorrected, site: b.SiteID, trace: trace, noun: noticeNoun{BatchReference: b.Reference, Row: &summary},
		id: webhookEventIDOf(b.ID, EventRowCorrected, r.RowReference, string(r.CorrectedOutcome)),
	}
}

// customerChanged tells that a link has come to its state.
func customerChanged(l *Link) notice {
	event := map[LinkState]WebhookEventType{
		LinkLinked: EventCustomerLinked, LinkRevoked: EventCustomerRevoked, LinkExpired: EventCustomerExpired,
	}[l.State]
	summary := l.Summary()
	return notice{
		event: event, site: l.SiteID, trace: l.TraceID, noun: noticeNoun{Customer: &summary},
		id: webhookEventIDOf(l.ID, event, string(l.State)),
	}
}

// body writes the notification as every attempt sends it, with the noun in the very bytes of a GET.
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
