package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// webhookEventData is an event on the wire. Lists leave out body, digest and attempts. BodySHA256
// is hexadecimal.
type webhookEventData struct {
	IdempotencyKey    models.WebhookEventID   `json:"idempotencyKey"`
	Type              models.WebhookEventType `json:"type"`
	SiteID            models.SiteID           `json:"siteId"`
	PaymentIntentID   models.PaymentIntentID  `json:"paymentIntentId,omitzero"`    // if Type is transactionStatus
	TransactionStatus string                  `json:"transactionStatus,omitempty"` // if Type is transactionStatus
	Test              bool                    `json:"test,omitempty"`
	Status            models.WebhookStatus    `json:"status"`
	AttemptCount      int                     `json:"attemptCount"`
	CreatedAt         models.Millis           `json:"createdAt"`
	RequestedAt       models.Millis           `json:"requestedAt"`
	NextAttemptAt     models.Millis           `json:"nextAttemptAt,omitempty"`
	DeliveredAt       models.Millis           `json:"deliveredAt,omitempty"`
	Body              string                  `json:"body,omitempty"`
	BodySHA256        string                  `json:"bodySha256,omitempty"`
	Attempts          []webhookAttemptData    `json:"attempts,omitempty"`
}

// webhookAttemptData is a models.WebhookAttempt on the wire. Endpoint is "default" or the siteId.
type webhookAttemptData struct {
	Number       int           `json:"number"`
	Endpoint     string        `json:"endpoint"`
	URL          string        `json:"url"`
	StartedAt    models.Millis `json:"startedAt"`
	DurationMs   int64         `json:"durationMs"`
	StatusCode   int           `json:"statusCode,omitempty"`
	Address      string        `json:"address,omitempty"`
	Error        string        `json:"error,omitempty"`
	ResponseHead string        `json:"responseHead,omitempty"`
}

// describeEvent returns an event as a list shows it.
func describeEvent(e *models.WebhookEvent) webhookEventData {
	return webhookEventData{
		IdempotencyKey: e.ID, Type: e.Type, SiteID: e.SiteID, PaymentIntentID: e.PaymentIntentID,
		TransactionStatus: e.TransactionStatus,
		Test:              e.Test, Status: e.Status, AttemptCount: e.Attempts, CreatedAt: e.CreatedAt,
		RequestedAt: e.RequestedAt, NextAttemptAt: e.NextAttemptAt, DeliveredAt: e.DeliveredAt,
	}
}

// describeAttempt returns an attempt as the answer shows it.
func describeAttempt(a *models.WebhookAttempt) webhookAttemptData {
	return webhookAttemptData{
		Number: a.Number, Endpoint: endpointName(a.EndpointSite), URL: a.URL, StartedAt: a.StartedAt,
		DurationMs: a.Duration.Milliseconds(), StatusCode: a.StatusCode, Address: a.Address, Error: a.Error,
		ResponseHead: printable(a.ResponseHead),
	}
}

// printable returns a part of an endpoint's response as valid UTF-8. Invalid bytes and NUL become
// U+FFFD.
func printable(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}

// webhookEventList is one page of an organisation's events on the wire.
type webhookEventList struct {
	Items      []webhookEventData `json:"items"`
	TotalItems int64              `json:"totalItems"`
	pageLinks
}

// webhookFilter is models.WebhookFilter as a pagination link encodes it.
type webhookFilter struct {
	Status          models.WebhookStatus    `json:"s,omitempty"`
	Type            models.WebhookEventType `json:"t,omitempty"`
	SiteID          models.SiteID           `json:"i,omitzero"`
	PaymentIntentID models.PaymentIntentID  `json:"p,omitzero"`
	From            *models.Millis          `json:"a,omitempty"`
	To              *models.Millis          `json:"b,omitempty"`
}

func (f *webhookFilter) filter() models.WebhookFilter { return models.WebhookFilter(*f) }

// readWebhookFilter decodes the filter in the query of a first page.
func readWebhookFilter(in *queryReader) (f webhookFilter) {
	f.Status = oneOf(in, "status", models.WebhookStatuses)
	f.Type = oneOf(in, "type", models.WebhookEventTypes)
	in.text("siteId", isID(&f.SiteID))
	in.text("paymentIntentId", isID(&f.PaymentIntentID))
	f.From, f.To = in.millis("from"), in.millis("to")
	return f
}

// checkFilterSite checks the Site of a filter, if there is one. Like checkSite, it answers every
// inaccessible Site alike.
func (w *webhooks) checkFilterSite(ctx context.Context, r *Request, site models.SiteID) error {
	if site.IsZero() {
		return nil
	}
	_, err := w.sites.Site(ctx, r.Principal.OrganisationID, site)
	return siteError(err)
}

// listEvents answers with one page of the organisation's events, newest first.
func (w *webhooks) listEvents(ctx context.Context, r *Request) error {
	q, err := openPage[webhookFilter, models.WebhookPosition](ctx, w.pages, r, readWebhookFilter)
	if err != nil {
		return err
	}
	if err := w.checkFilterSite(ctx, r, q.Filter.SiteID); err != nil {
		return err
	}
	page, err := w.store.ListWebhookEvents(ctx, models.WebhookQuery{
		OrganisationID: r.Principal.OrganisationID, Filter: q.Filter.filter(), Direction: q.Direction, At: q.From,
		Limit: q.Limit,
	})
	if err != nil {
		return err
	}
	list := webhookEventList{Items: make([]webhookEventData, len(page.Items)), TotalItems: page.Total}
	for i := range page.Items {
		list.Items[i] = describeEvent(&page.Items[i])
	}
	if list.pageLinks, err = q.links(ctx, w.pages, r, page.Next, page.Prev, page.Now); err != nil {
		return err
	}
	return r.JSON(http.StatusOK, list)
}

// getEvent answers with the event in the path, its body and its attempts.
func (w *webhooks) getEvent(ctx context.Context, r *Request) error {
	event, attempts, err := w.store.WebhookEvent(ctx, r.Principal.OrganisationID, paramID[models.WebhookEventID](r))
	if err != nil {
		return webhookError(r, err)
	}
	data := describeEvent(&event)
	digest := sha256.Sum256(event.Body)
	data.Body, data.BodySHA256 = string(event.Body), hex.EncodeToString(digest[:])
	for i := range attempts {
		data.Attempts = append(data.Attempts, describeAttempt(&attempts[i]))
	}
	return r.JSON(http.StatusOK, data)
}

// redeliver starts another round of delivery of the event in the path.
func (w *webhooks) redeliver(ctx context.Context, r *Request) error {
	event, task, err := w.store.RedeliverWebhook(ctx, r.Principal.OrganisationID, paramID[models.WebhookEventID](r))
	if err != nil {
		return webhookError(r, err)
	}
	notifyTasks(w.notify, task)
	return r.JSON(http.StatusAccepted, describeEvent(&event))
}

// redeliveryData is the result of a redelivery by filter. Count is the number of redelivered
// events. If events are left over, a call with ResumeFrom as "from" continues.
type redeliveryData struct {
	Count      int           `json:"count"`
	ResumeFrom models.Millis `json:"resumeFrom,omitzero"`
}

// redeliverMany starts another round of delivery of the events that the filter in the body selects,
// oldest first.
func (w *webhooks) redeliverMany(ctx context.Context, r *Request) error {
	filter, err := readRedelivery(r)
	if err != nil {
		return err
	}
	if err := w.checkFilterSite(ctx, r, filter.SiteID); err != nil {
		return err
	}
	done, err := w.store.RedeliverWebhooks(ctx, r.Principal.OrganisationID, filter)
	notifyTasks(w.notify, done.Tasks...)
	if err != nil {
		return err
	}
	return r.JSON(http.StatusAccepted, redeliveryData{done.Count, done.ResumeFrom})
}

// readRedelivery decodes the filter of a redelivery. It refuses an empty filter, so that no mistake
// redelivers everything.
func readRedelivery(r *Request) (f models.WebhookFilter, err error) {
	body := strictjson.NewObject(r.Body, "status", "type", "siteId", "paymentIntentId", "from", "to")
	if text, ok := body.OptionalString("status", isOneOf(models.WebhookStatuses)); ok {
		f.Status = models.WebhookStatus(text)
	}
	if text, ok := body.OptionalString("type", isOneOf(models.WebhookEventTypes)); ok {
		f.Type = models.WebhookEventType(text)
	}
	body.OptionalString("siteId", isID(&f.SiteID))
	body.OptionalString("paymentIntentId", isID(&f.PaymentIntentID))
	f.From, f.To = optionalMillis(body, "from"), optionalMillis(body, "to")
	if err := r.BodyError(body); err != nil {
		return f, err
	}
	if f == (models.WebhookFilter{}) {
		return f, RefuseField(WebhooksMissingField, "status", "or another field of the filter is required")
	}
	return f, nil
}
