package models

import (
	"fmt"
	"strconv"
)

// notice is a notification of any type except EventTransactionStatus: its Site, and its noun as in
// a GET.
type notice struct {
	event WebhookEventType
	site  SiteID
	trace TraceID // of the request that made the batch or the invitation
	id    WebhookEventID
	noun  noticeNoun
}

// noticeNoun is the noun of a notice. Exactly one of Batch, Customer, and BatchReference with Row
// is set.
type noticeNoun struct {
	Batch          *BatchSummary    `json:"batch,omitempty"`
	BatchReference string           `json:"batchReference,omitempty"`
	Row            *BatchRowSummary `json:"row,omitempty"`
	Customer       *CustomerSummary `json:"customer,omitempty"`
}

// batchSettled is the notice of a settled batch. Another result of the same batch makes another
// event.
func batchSettled(b *Batch, trace TraceID) notice {
	summary := b.Summary()
	return notice{
		event: EventBatchSettled, site: b.SiteID, trace: trace, noun: noticeNoun{Batch: &summary},
		id: webhookEventIDOf(b.ID, EventBatchSettled, strconv.Itoa(b.Counts.Succeeded),
			strconv.FormatInt(int64(b.SucceededAmount), 10)),
	}
}

// rowCorrected is the notice of a correction to a settled row.
func rowCorrected(b *Batch, r *BatchRow, trace TraceID) notice {
	summary := r.Summary()
	return notice{
		event: EventRowCorrected, site: b.SiteID, trace: trace, noun: noticeNoun{BatchReference: b.Reference, Row: &summary},
		id: webhookEventIDOf(b.ID, EventRowCorrected, r.RowReference, string(r.CorrectedOutcome)),
	}
}

// customerChanged is the notice of a link's change of state.
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

// body encodes the notification that every attempt sends, with the noun byte for byte as in a GET.
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
