package models

import (
	"bytes"
	"context"
	_ "embed" // statements
	"fmt"
	"slices"
	"strconv"
	"strings"

	"partnerbilling/models/postgres"

	"github.com/google/uuid"
)

//go:embed payment_intent_list.sql
var listIntentsSQL string

// intentSource is a part of the list that one index holds in order.
type intentSource struct{ from, where string }

// storedIntents selects intents by a condition on stored columns.
func storedIntents(where string) intentSource {
	return intentSource{"payment_intents p", "p.site_id = $1 AND " + where}
}

// overdueIntents are intents past their expiry that no statement has ended yet.
var overdueIntents = intentSource{"overdue p", "true"}

// sources are the parts of the list that a query reads. Together they contain every matching intent
// once. Final intents are read status by status: an index over all final intents would duplicate
// the one by status.
func (q *IntentQuery) sources() []intentSource {
	switch {
	case q.Status != "" && q.State != "" && q.State != IntentFinal:
		return []intentSource{storedIntents("false")}
	case q.Status != "":
		return endedIntents(q.Status)
	case q.State == IntentFinal:
		return endedIntents(TransactionStatuses...)
	case q.State == IntentCreated:
		return []intentSource{storedIntents("p.state = 'created' AND p.expires_at > (SELECT now FROM clock)")}
	case q.State == IntentPending:
		return []intentSource{storedIntents("p.state = 'pending'")}
	default:
		return []intentSource{storedIntents("true")}
	}
}

// endedIntents are the parts with intents that ended with one of the statuses.
func endedIntents(statuses ...TransactionStatus) []intentSource {
	var sources []intentSource
	for _, s := range statuses {
		sources = append(sources, storedIntents("p.transaction_status = '"+string(s)+"'"))
		if s == TransactionExpired {
			sources = append(sources, overdueIntents)
		}
	}
	return sources
}

// isValid refuses unknown filter values, which would become part of a statement.
func (q *IntentQuery) isValid() bool {
	return q.Limit >= 1 && q.Limit <= 100 && (q.State == "" || slices.Contains(IntentStates, q.State)) &&
		(q.Status == "" || slices.Contains(TransactionStatuses, q.Status))
}

func listIntents(q *IntentQuery) (query string, args []any) {
	keys := keyRange[PaymentIntentID]{
		highest: PaymentIntentID(uuid.Max), compare: func(a, b PaymentIntentID) int { return bytes.Compare(a[:], b[:]) },
	}
	span := spanOf(q.CreatedFrom, q.CreatedTo, q.Direction, listPosition[PaymentIntentID]{q.From.CreatedAt, q.From.ID},
		q.From == IntentPosition{}, keys)
	args = []any{q.SiteID, span.from, span.to, span.ahead.at, span.ahead.key, span.behind.at, span.behind.key}
	orderFilter := ""
	if q.OrderID != "" {
		orderFilter = " AND p.order_id = $8"
		args = append(args, q.OrderID)
	}
	ahead, end, behind, beginning, order, back := "<", ">= $2", ">=", "<= $3", "DESC", "ASC"
	if q.Direction == Backward {
		ahead, end, behind, beginning, order, back = ">", "<= $3", "<=", ">= $2", "ASC", "DESC"
	}
	var pages, behinds []string
	limit := strconv.Itoa(q.Limit + 1)
	for _, s := range q.sources() {
		where := " FROM " + s.from + " WHERE " + s.where + orderFilter
		pages = append(pages, "(SELECT p.*"+where+" AND (p.created_at, p.id) "+ahead+" ($4, $5) AND p.created_at "+end+
			" ORDER BY p.created_at "+order+", p.id "+order+" LIMIT "+limit+")")
		behinds = append(behinds, "(SELECT true"+where+" AND (p.created_at, p.id) "+behind+" ($6, $7) AND p.created_at "+beginning+
			" AND $6 "+beginning+" ORDER BY p.created_at "+back+", p.id "+back+" LIMIT 1) IS NOT NULL")
	}
	return strings.NewReplacer("<order filter>", orderFilter, "<ahead sources>", strings.Join(pages, " UNION ALL "),
		"<behind sources>", strings.Join(behinds, " OR "), "<order>", order, "<limit>", limit).Replace(listIntentsSQL), args
}

// ListPaymentIntents returns one page of a Site's payment intents. A walk through the pages finds
// every intent that matched throughout exactly once, despite concurrent changes. It expires the
// page's overdue intents before it answers, so that no concurrent payment contradicts the answer.
func (s *Store) ListPaymentIntents(ctx context.Context, q IntentQuery) (page IntentPage, err error) {
	if !q.isValid() {
		return IntentPage{}, fmt.Errorf("models: list payment intents: state %q, status %q, limit %d", q.State, q.Status,
			q.Limit)
	}
	const tries = 3 // a page may show intents that expire between two reads
	for range tries {
		if page, err = s.listPaymentIntents(ctx, &q); err != nil {
			break
		}
		var overdue []PaymentIntentID
		for i := range page.Intents {
			if page.Intents[i].isOverdue(page.Now) {
				overdue = append(overdue, page.Intents[i].ID)
			}
		}
		if len(overdue) == 0 {
			break
		}
		if err = s.expireIntents(ctx, q.SiteID, overdue); err != nil {
			break
		}
	}
	for i := range page.Intents {
		page.Intents[i] = page.Intents[i].effective(page.Now)
	}
	return page, wrap("list payment intents", err)
}

func (s *Store) listPaymentIntents(ctx context.Context, q *IntentQuery) (page IntentPage, err error) {
	query, args := listIntents(q)
	err = s.pg.Do(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		page = IntentPage{}
		var behind bool
		found := make([]PaymentIntent, 0, q.Limit+1)
		for rows.Next() {
			intent, err := scanIntent(rows, &page.Now, &behind)
			if err != nil {
				return err
			}
			if !intent.ID.IsZero() { // an empty page still has one row, with NULLs
				found = append(found, intent)
			}
		}
		page.Intents, page.Next, page.Prev = cutPage(found, q.Limit, q.Direction, behind, (*PaymentIntent).position)
		return rows.Err()
	})
	return page, err
}

// ExplainListPaymentIntents is EXPLAIN (ANALYZE, BUFFERS) of the statement behind
// ListPaymentIntents, as JSON.
func (s *Store) ExplainListPaymentIntents(ctx context.Context, q IntentQuery) (plan []byte, err error) {
	query, args := listIntents(&q)
	err = s.pg.Do(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query, args...).Scan(&plan)
	})
	return plan, wrap("explain list payment intents", err)
}

// expireIntents expires overdue intents among ids, unless another statement has ended them or begun
// their payment.
func (s *Store) expireIntents(ctx context.Context, site SiteID, ids []PaymentIntentID) error {
	return s.pg.InTx(ctx, func(tx postgres.Tx) error {
		_, _, err := endUnpaid(ctx, tx, TransactionExpired, `
WITH due AS (
    SELECT site_id, id FROM payment_intents
    WHERE site_id = $3 AND id = ANY ($4::uuid[]) AND state = 'created' AND expires_at <= svc_now()
    ORDER BY id FOR UPDATE
)`, site, ids)
		return err
	})
}
