package models

import (
	"context"
	_ "embed" // statements
	"fmt"
	"strings"

	"github.com/google/uuid"

	"partnerbilling/models/postgres"
)

//go:embed payment_intent_list.sql
var listIntentsText string

// intentFilter selects the intents of a list by effective state.
type intentFilter struct {
	ofOrder bool              // only intents of one orderId, the argument order_id
	state   IntentState       // "": all
	status  TransactionStatus // "": all
}

// intentLists holds the statements of every filter.
var intentLists = newIntentLists()

func newIntentLists() map[intentFilter]listStatement {
	lists := map[intentFilter]listStatement{}
	for _, ofOrder := range []bool{false, true} {
		for _, state := range append([]IntentState{""}, IntentStates...) {
			for _, status := range append([]TransactionStatus{""}, TransactionStatuses...) {
				f := intentFilter{ofOrder, state, status}
				lists[f] = f.list()
			}
		}
	}
	return lists
}

// list returns the statements of a filter. They combine its sources, which together contain every
// matching intent once.
func (f intentFilter) list() listStatement {
	filter := "true"
	if f.ofOrder {
		filter = "p.order_id = :order_id"
	}
	var parts, others []string
	for _, s := range f.sources() {
		source := strings.NewReplacer(":SOURCE", s.from, ":WHERE", s.where)
		parts, others = append(parts, source.Replace(intentPart)), append(others, source.Replace(intentOthers))
	}
	text := strings.NewReplacer(":PARTS", strings.Join(parts, " UNION ALL "), ":OTHERS", strings.Join(others, " OR ")).
		Replace(listIntentsText)
	return newListStatement(text, maxPage, ":FILTER", filter)
}

// intentPart selects the page's intents of one source. intentOthers tells whether the source has
// intents behind the page. It reads only the next index entry: EXISTS would ignore the ORDER BY and
// could read more. Its condition on :behind_at is false for the first page, which has nothing
// behind it.
const (
	intentPart = `
    (SELECT * FROM (
        SELECT p.* FROM :SOURCE p
        WHERE :WHERE AND :FILTER AND (p.created_at, p.id) :AHEAD (:ahead_at, :ahead_key) AND p.created_at :UNTIL
        ORDER BY p.created_at :ORDER, p.id :ORDER LIMIT :MOST
    ) p LIMIT :limit)`
	intentOthers = `
    (SELECT true FROM :SOURCE p
     WHERE :WHERE AND :FILTER AND (p.created_at, p.id) :BEHIND (:behind_at, :behind_key) AND p.created_at :SINCE
       AND :behind_at :SINCE
     ORDER BY p.created_at :BACK, p.id :BACK LIMIT 1) IS NOT NULL`
)

// intentSource is a part of the list that one index holds in order: the table or CTE to read as p,
// and a condition on p.
type intentSource struct{ from, where string }

// storedIntents selects intents by a condition on stored columns.
func storedIntents(where string) intentSource {
	return intentSource{"payment_intents", "p.site_id = :site AND " + where}
}

// overdueIntents are intents past their expiry that no statement has ended yet.
var overdueIntents = intentSource{"overdue", "true"}

// sources returns the sources of a filter. Final intents have one source for each status: an index
// over all final intents would duplicate the one by status.
func (f intentFilter) sources() []intentSource {
	switch {
	case f.status != "" && f.state != "" && f.state != IntentFinal:
		return []intentSource{storedIntents("false")}
	case f.status != "":
		return endedIntents(f.status)
	case f.state == IntentFinal:
		return endedIntents(TransactionStatuses...)
	case f.state == IntentCreated:
		return []intentSource{storedIntents("p.state = 'created' AND p.expires_at > (SELECT now FROM clock)")}
	case f.state == IntentPending:
		return []intentSource{storedIntents("p.state = 'pending'")}
	default:
		return []intentSource{storedIntents("true")}
	}
}

// endedIntents returns the sources of the intents that ended with one of the statuses.
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

func (q *IntentQuery) filter() intentFilter { return intentFilter{q.OrderID != "", q.State, q.Status} }

func (q *IntentQuery) page() pageQuery[PaymentIntentID] {
	return pageQuery[PaymentIntentID]{q.CreatedFrom, q.CreatedTo, q.Direction, q.At, q.Limit}
}

func (q *IntentQuery) statement() (postgres.Statement, postgres.Args) {
	args := q.page().span(maxListTime, PaymentIntentID(uuid.Max)).args(q.Limit)
	args["site"] = q.SiteID
	if q.OrderID != "" {
		args["order_id"] = q.OrderID
	}
	return intentLists[q.filter()].going(q.Direction), args
}

// ListPaymentIntents returns one page of a Site's payment intents. A walk through all pages returns
// each intent that matches during the whole walk exactly once, despite concurrent changes. The call
// expires the page's overdue intents before it answers, so that no concurrent payment contradicts
// the answer. An unknown State or Status, or a Limit out of range, is an error.
func (s *Store) ListPaymentIntents(ctx context.Context, q IntentQuery) (page IntentPage, err error) {
	if _, ok := intentLists[q.filter()]; !ok || q.Limit < 1 || q.Limit > maxPage {
		return IntentPage{}, fmt.Errorf("models: list payment intents: state %q, status %q, limit %d",
			q.State, q.Status, q.Limit)
	}
	const tries = 3 // more intents may expire between two reads; effective below covers the rest
	for range tries {
		if page, err = s.listPaymentIntents(ctx, &q); err != nil {
			break
		}
		var overdue []PaymentIntentID
		for i := range page.Items {
			if page.Items[i].isOverdue(page.Now) {
				overdue = append(overdue, page.Items[i].ID)
			}
		}
		if len(overdue) == 0 {
			break
		}
		if err = s.expireIntents(ctx, q.SiteID, overdue); err != nil {
			break
		}
	}
	for i := range page.Items {
		page.Items[i] = page.Items[i].effective(page.Now)
	}
	return page, wrap("list payment intents", err)
}

// listPaymentIntents reads the page once, with intents in their stored states.
func (s *Store) listPaymentIntents(ctx context.Context, q *IntentQuery) (IntentPage, error) {
	list, args := q.statement()
	var rows []*intentListRow
	if err := s.pg.Select(ctx, list, args, &rows); err != nil {
		return IntentPage{}, err
	}
	return pageOf(rows, q.page(), (*PaymentIntent).position), nil
}

// intentListRow is a row of payment_intent_list.sql.
type intentListRow struct {
	listHead
	PaymentIntent
}

func (r *intentListRow) item() *PaymentIntent {
	if r.ID.IsZero() {
		return nil
	}
	return &r.PaymentIntent
}

var expireListedSQL = endUnpaidSQL(`
    SELECT site_id, id FROM payment_intents
    WHERE site_id = :site AND id = ANY (:ids::uuid[]) AND state = 'created' AND expires_at <= svc_now()
    ORDER BY id FOR UPDATE`)

// expireIntents expires overdue intents among ids, unless another statement has ended them or begun
// their payment.
func (s *Store) expireIntents(ctx context.Context, site SiteID, ids []PaymentIntentID) error {
	return s.pg.InTx(ctx, func(tx postgres.Tx) error {
		_, _, err := endUnpaid(ctx, tx, TransactionExpired, expireListedSQL, postgres.Args{"site": site, "ids": ids})
		return err
	})
}
