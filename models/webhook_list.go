package models

import (
	"context"
	_ "embed" // statements
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"partnerbilling/models/postgres"
)

// WebhookFilter selects events of an organisation. Zero fields match every event.
type WebhookFilter struct {
	Status          WebhookStatus
	Type            WebhookEventType
	SiteID          SiteID
	PaymentIntentID PaymentIntentID
	From, To        *Millis // of CreatedAt, both inclusive
}

// describe adds the filter to an act's details.
func (f WebhookFilter) describe(a *Act) {
	for name, value := range map[string]string{"status": string(f.Status), "type": string(f.Type)} {
		if value != "" {
			a.with(name, value)
		}
	}
	if !f.PaymentIntentID.IsZero() {
		a.with("paymentIntentId", f.PaymentIntentID)
	}
	for name, at := range map[string]*Millis{"from": f.From, "to": f.To} {
		if at != nil {
			a.with(name, *at)
		}
	}
}

// WebhookPosition is an event's position in the list, by CreatedAt and ID.
type WebhookPosition = Position[WebhookEventID]

func (e *WebhookEvent) position() WebhookPosition { return WebhookPosition{e.CreatedAt, e.ID} }

// WebhookQuery asks for one page of an organisation's events, ordered by CreatedAt and then ID,
// newest first.
type WebhookQuery struct {
	OrganisationID OrganisationID
	Filter         WebhookFilter
	Direction      Direction
	At             WebhookPosition // the page holds the events that follow it in Direction
	Limit          int             // maximum number of events on the page, 1 to 100
}

// WebhookPage is one page of the list. Its events have no bodies, and Total is exact.
type WebhookPage = Page[WebhookEvent, WebhookEventID]

// webhookColumns are the columns of a WebhookEvent. Callers add the body if they need it.
const webhookColumns = `w.organisation_id, w.id, w.site_id, w.type, w.payment_intent_id, w.transaction_status,
    w.is_test AS test, w.status, w.attempts, w.created_at, w.requested_at, w.next_attempt_at, w.delivered_at,
    w.trace_id`

// selectFrom selects the matching events of an organisation.
func (f WebhookFilter) selectFrom(tx postgres.Tx, organisation OrganisationID) *bun.SelectQuery {
	q := tx.NewSelect().TableExpr("webhook_events AS w").Where("w.organisation_id = ?", organisation)
	if f.Status != "" {
		q.Where("w.status = ?", f.Status)
	}
	if f.Type != "" {
		q.Where("w.type = ?", f.Type)
	}
	if !f.SiteID.IsZero() {
		q.Where("w.site_id = ?", f.SiteID)
	}
	if !f.PaymentIntentID.IsZero() {
		q.Where("w.payment_intent_id = ?", f.PaymentIntentID)
	}
	if f.From != nil {
		q.Where("w.created_at >= ?", *f.From)
	}
	if f.To != nil {
		q.Where("w.created_at <= ?", *f.To)
	}
	return q
}

// ListWebhookEvents returns one page of an organisation's events. A walk through all pages returns
// each event that matches the filter during the whole walk exactly once.
func (s *Store) ListWebhookEvents(ctx context.Context, q WebhookQuery) (page WebhookPage, err error) {
	if q.Limit < 1 || q.Limit > maxPage {
		return WebhookPage{}, fmt.Errorf("models: list webhook events: limit %d", q.Limit)
	}
	err = s.pg.InSnapshot(ctx, func(tx postgres.Tx) error {
		page, err = listWebhookEvents(ctx, tx, &q)
		return err
	})
	return page, wrap("list webhook events", err)
}

func (q *WebhookQuery) page() pageQuery[WebhookEventID] {
	return pageQuery[WebhookEventID]{q.Filter.From, q.Filter.To, q.Direction, q.At, q.Limit}
}

// listWebhookEvents reads the page in the snapshot of tx: its events, whether events lie behind it,
// and the total.
func listWebhookEvents(ctx context.Context, tx postgres.Tx, q *WebhookQuery) (page WebhookPage, err error) {
	ahead, behind, order := "<", ">=", "DESC"
	if q.Direction == Backward {
		ahead, behind, order = ">", "<=", "ASC"
	}
	span := q.page().span(maxListTime, WebhookEventID(uuid.Max))
	matching := func() *bun.SelectQuery { return q.Filter.selectFrom(tx, q.OrganisationID) }
	beyond := func(side string, at WebhookPosition) *bun.SelectQuery {
		return matching().Where("(w.created_at, w.id) "+side+" (?, ?)", at.At, at.Key)
	}
	found := make([]WebhookEvent, 0, q.Limit+1)
	err = beyond(ahead, span.ahead).ColumnExpr(webhookColumns).OrderExpr("w.created_at "+order+", w.id "+order).
		Limit(int64(q.Limit)+1).Scan(ctx, &found)
	if err != nil {
		return page, err
	}
	if q.Direction == Backward {
		slices.Reverse(found)
	}
	isBehind, err := beyond(behind, span.behind).Exists(ctx)
	if err != nil {
		return page, err
	}
	page.cut(found, q.page(), isBehind, (*WebhookEvent).position)
	if err = tx.NewSelect().ColumnExpr("svc_now()").Scan(ctx, &page.Now); err != nil {
		return page, err
	}
	page.Total, err = matching().Count(ctx)
	return page, err
}

var webhookEventSQL = postgres.SQL(`
SELECT ` + webhookColumns + `, w.body FROM webhook_events w WHERE w.organisation_id = :organisation AND w.id = :event`)

// WebhookEvent returns one event of the organisation with its body, and its attempts in order;
// ErrNotFound if there is none.
func (s *Store) WebhookEvent(
	ctx context.Context, organisation OrganisationID, id WebhookEventID,
) (event WebhookEvent, attempts []WebhookAttempt, err error) {
	err = s.pg.Get(ctx, webhookEventSQL, postgres.Args{"organisation": organisation, "event": id}, &event)
	if err == nil {
		attempts, err = s.webhookAttempts(ctx, organisation, id, 0)
	}
	return event, attempts, wrap("webhook event", notFound(err, "webhook event"))
}

// WebhookAttempt returns one attempt of an event; ErrNotFound if it is not recorded.
func (s *Store) WebhookAttempt(
	ctx context.Context, organisation OrganisationID, id WebhookEventID, number int,
) (WebhookAttempt, error) {
	attempts, err := s.webhookAttempts(ctx, organisation, id, number)
	switch {
	case err != nil:
		return WebhookAttempt{}, wrap("webhook attempt", err)
	case len(attempts) == 0:
		return WebhookAttempt{}, notFoundError("webhook attempt")
	}
	return attempts[0], nil
}

var webhookAttemptsSQL = postgres.SQL(`
SELECT number, endpoint_site_id AS endpoint_site, started_at, duration_ms::bigint * 1000000 AS duration, status_code,
       url, address, error, response_head
FROM webhook_attempts
WHERE organisation_id = :organisation AND event_id = :event AND (:number = 0 OR number = :number) ORDER BY number`)

// webhookAttempts returns an event's attempts in order. A number other than 0 selects the attempt
// with that number alone.
func (s *Store) webhookAttempts(
	ctx context.Context, organisation OrganisationID, id WebhookEventID, number int,
) (attempts []WebhookAttempt, err error) {
	err = s.pg.Select(ctx, webhookAttemptsSQL,
		postgres.Args{"organisation": organisation, "event": id, "number": number}, &attempts)
	return attempts, err
}
