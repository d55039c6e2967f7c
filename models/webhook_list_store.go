package models

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// webhookColumns are the columns that scanWebhook reads. Callers add the body if they need it.
const webhookColumns = `w.organisation_id, w.id, w.site_id, w.type, w.payment_intent_id, coalesce(w.transaction_status, '') AS transaction_status, w.is_test AS test, w.status, w.attempts,
    w.created_at, w.requested_at, coalesce(w.next_attempt_at, 0) AS next_attempt_at, coalesce(w.delivered_at, 0) AS delivered_at, w.trace_id`

func (e *WebhookEvent) columns() []any {
	return []any{
		&e.OrganisationID, &e.ID, &e.SiteID, &e.Type, &e.PaymentIntentID, &e.TransactionStatus, &e.Test, &e.Status, &e.Attempts,
		&e.CreatedAt, &e.RequestedAt, &e.NextAttemptAt, &e.DeliveredAt, &e.TraceID,
	}
}

// where is the filter as an SQL condition on webhook_events w. It appends its arguments to args.
func (f WebhookFilter) where(args []any) (string, []any) {
	var where strings.Builder
	add := func(condition string, arg any) {
		args = append(args, arg)
		fmt.Fprintf(&where, " AND w."+condition, len(args))
	}
	if f.Status != "" {
		add("status = $%d::webhook_event_status", string(f.Status))
	}
	if f.Type != "" {
		add("type = $%d::webhook_event_type", string(f.Type))
	}
	if !f.SiteID.IsZero() {
		add("site_id = $%d", f.SiteID)
	}
	if !f.PaymentIntentID.IsZero() {
		add("payment_intent_id = $%d", f.PaymentIntentID)
	}
	if f.From != nil {
		add("created_at >= $%d", *f.From)
	}
	if f.To != nil {
		add("created_at <= $%d", *f.To)
	}
	return where.String(), args
}

// ListWebhookEvents returns one page of an organisation's events. A walk through the pages finds
// every event that matched throughout exactly once.
func (s *Store) ListWebhookEvents(ctx context.Context, q WebhookQuery) (page WebhookPage, err error) {
	if q.Limit < 1 || q.Limit > 100 {
		return WebhookPage{}, fmt.Errorf("models: list webhook events: limit %d", q.Limit)
	}
	err = s.pg.Do(ctx, func() error {
		page, err = s.listWebhookEvents(ctx, &q)
		return err
	})
	return page, wrap("list webhook events", err)
}

func (s *Store) listWebhookEvents(ctx context.Context, q *WebhookQuery) (WebhookPage, error) {
	at, ahead, behind, order := q.From, "<", ">=", "DESC"
	if q.Direction == Backward {
		ahead, behind, order = ">", "<=", "ASC"
	} else if at == (WebhookPosition{}) {
		at.CreatedAt = math.MaxInt64
	}
	where, args := q.Filter.where([]any{q.OrganisationID, at.CreatedAt, at.ID})
	rows, err := s.db.DB.QueryContext(ctx, `
WITH page AS (
    SELECT * FROM webhook_events w
    WHERE w.organisation_id = $1 AND (w.created_at, w.id) `+ahead+` ($2, $3)`+where+`
    ORDER BY w.created_at `+order+`, w.id `+order+` LIMIT `+strconv.Itoa(q.Limit+1)+` -- in the text: of one it does not know, Postgres expects much
)
SELECT svc_now(), (SELECT count(*) FROM webhook_events w WHERE w.organisation_id = $1`+where+`),
       EXISTS (SELECT FROM webhook_events w WHERE w.organisation_id = $1 AND (w.created_at, w.id) `+behind+` ($2, $3)`+where+`),
       w.id IS NOT NULL, `+nullable(webhookColumns)+`
FROM (SELECT) one LEFT JOIN page w ON true ORDER BY w.created_at DESC, w.id DESC`, args...)
	if err != nil {
		return WebhookPage{}, err
	}
	defer func() { _ = rows.Close() }()
	var now Millis
	var total int64
	found, isBehind := make([]WebhookEvent, 0, q.Limit+1), false
	for rows.Next() {
		var e WebhookEvent
		var isThere bool
		if err := rows.Scan(append([]any{&now, &total, &isBehind, &isThere}, e.columns()...)...); err != nil {
			return WebhookPage{}, err
		}
		if isThere { // an empty page still has one row, with NULLs
			found = append(found, e)
		}
	}
	page := newWebhookPage(q, found, isBehind)
	page.Now, page.Total = now, total
	return page, rows.Err()
}

// nullable makes the columns of a missing row scannable.
func nullable(columns string) string {
	return strings.NewReplacer("w.type", "coalesce(w.type, 'transactionStatus')", "w.is_test",
		"coalesce(w.is_test, false)",
		"w.status", "coalesce(w.status, 'pending')", "w.attempts", "coalesce(w.attempts, 0)", "w.created_at", "coalesce(w.created_at, 0)",
		"w.requested_at", "coalesce(w.requested_at, 0)", "w.trace_id", "coalesce(w.trace_id, '')").Replace(columns)
}

// WebhookEvent returns one event of the organisation with its body, and its attempts in order;
// ErrNotFound if there is none.
func (s *Store) WebhookEvent(
	ctx context.Context, organisation OrganisationID, id WebhookEventID,
) (event WebhookEvent, attempts []WebhookAttempt, err error) {
	err = s.pg.Do(ctx, func() error {
		event = WebhookEvent{}
		row := s.db.DB.QueryRowContext(ctx, `SELECT `+webhookColumns+`, w.body FROM webhook_events w
WHERE w.organisation_id = $1 AND w.id = $2`, organisation, id)
		if err := row.Scan(append(event.columns(), &event.Body)...); err != nil {
			return notFound(err, "webhook event")
		}
		attempts, err = s.webhookAttempts(ctx, organisation, id, 0)
		return err
	})
	return event, attempts, wrap("webhook event", err)
}

// WebhookAttempt returns one attempt of an event; ErrNotFound if it is not recorded.
func (s *Store) WebhookAttempt(
	ctx context.Context, organisation OrganisationID, id WebhookEventID, number int,
) (WebhookAttempt, error) {
	var attempts []WebhookAttempt
	err := s.pg.Do(ctx, func() (err error) {
		attempts, err = s.webhookAttempts(ctx, organisation, id, number)
		return err
	})
	switch {
	case err != nil:
		return WebhookAttempt{}, wrap("webhook attempt", err)
	case len(attempts) == 0:
		return WebhookAttempt{}, notFoundError("webhook attempt")
	}
	return attempts[0], nil
}

// webhookAttempts returns an event's attempts, or only the one with the number unless that is 0.
func (s *Store) webhookAttempts(
	ctx context.Context, organisation OrganisationID, id WebhookEventID, number int,
) ([]WebhookAttempt, error) {
	rows, err := s.db.DB.QueryContext(ctx, `
SELECT number, endpoint_site_id, started_at, duration_ms, coalesce(status_code, 0), url, address, error, response_head
FROM webhook_attempts WHERE organisation_id = $1 AND event_id = $2 AND ($3 = 0 OR number = $3) ORDER BY number`,
		organisation, id, number)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(a *WebhookAttempt) []any {
		return []any{
			&a.Number, &a.EndpointSite, &a.StartedAt, (*millisDuration)(&a.Duration), &a.StatusCode, &a.URL, &a.Address, &a.Error,
			&a.ResponseHead,
		}
	})
}

// DropOldWebhookEvents deletes at most limit events that ended more than WebhookHistory ago, with
// their attempts, and returns their number.
func (s *Store) DropOldWebhookEvents(ctx context.Context, limit int) (int, error) {
	return s.execCount(ctx, "drop old webhook events", `
WITH old AS MATERIALIZED (
    SELECT organisation_id, id, (SELECT p.ctid FROM webhook_slots p WHERE p.organisation_id = w.organisation_id AND p.event_id = w.id) AS slot
    FROM webhook_events w WHERE created_at <= svc_now() - $1 AND requested_at <= svc_now() - $1
      AND status <> 'pending' ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
), slots AS (
    DELETE FROM webhook_slots p USING old WHERE p.ctid = old.slot
)
DELETE FROM webhook_events e USING old
WHERE e.organisation_id = old.organisation_id AND e.id = old.id`, WebhookHistory.Milliseconds(), limit)
}
