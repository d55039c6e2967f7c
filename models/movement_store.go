package models

import (
	"context"
	_ "embed" // statements
	"fmt"
	"strconv"
	"strings"
	"time"

	"partnerbilling/models/postgres"
)

// movementsWithin bounds the statement that lists movements. Its totals take time proportional to
// the range.
const movementsWithin = 5 * time.Second

//go:embed movement_list.sql
var listMovementsSQL string

// movementColumns are the columns of ledger_entries l that movementFields scans. They are readable
// when the row is missing.
const movementColumns = `coalesce(l.rail_key, ''), coalesce(l.recorded_at, 0), coalesce(l.amount, 0), coalesce(l.currency, ''),
       coalesce(l.batch_reference, ''), coalesce(l.row_reference, ''), coalesce(l.customer_reference, ''), l.payment_intent_id,
       coalesce(l.order_id, '')`

func movementFields(m *Movement) []any {
	return []any{
		&m.RailKey, &m.RecordedAt, &m.Amount, &m.Currency, &m.BatchReference, &m.RowReference, &m.CustomerReference,
		&m.PaymentIntentID, &m.OrderID,
	}
}

func (q *MovementQuery) span() listSpan[string] {
	keys := keyRange[string]{highest: "\x7f", compare: strings.Compare} // keys are letters, digits and underscores
	return spanOf(q.From, q.To, q.Direction, listPosition[string]{q.At.RecordedAt, q.At.RailKey},
		q.At == MovementPosition{}, keys)
}

func listMovements(q *MovementQuery) (query string, args []any) {
	span := q.span()
	replacements := []string{"<ahead>", "<", "<end>", ">= $2", "<behind>", ">=", "<beginning>", "<= $3", "<order>",
		"DESC", "<back>", "ASC"}
	if q.Direction == Backward {
		replacements = []string{"<ahead>", ">", "<end>", "<= $3", "<behind>", "<=", "<beginning>", ">= $2", "<order>", "ASC",
			"<back>", "DESC"}
	}
	replacements = append(replacements, "<limit>", strconv.Itoa(q.Limit+1), "<columns>", movementColumns)
	return strings.NewReplacer(replacements...).Replace(listMovementsSQL),
		[]any{q.SiteID, span.from, span.to, span.ahead.at, span.ahead.key, span.behind.at, span.behind.key}
}

// ListMovements returns one page of a Site's movements, with exact totals of the range. A walk
// through the pages finds every movement that existed throughout exactly once. ErrUnavailable:
// totalling the range takes too long.
func (s *Store) ListMovements(ctx context.Context, q MovementQuery) (page MovementPage, err error) {
	if q.Limit < 1 || q.Limit > MaxMovements {
		return MovementPage{}, fmt.Errorf("models: list movements: limit %d", q.Limit)
	}
	err = s.inMovements(ctx, func(ctx context.Context, tx postgres.Tx) (err error) {
		page, err = readMovements(ctx, tx, &q)
		return err
	})
	return page, wrap("list movements", err)
}

// inMovements runs a transaction that reads movements.
func (s *Store) inMovements(ctx context.Context, read func(ctx context.Context, tx postgres.Tx) error) error {
	deadline := fmt.Sprintf("SET LOCAL statement_timeout = %d", movementsWithin.Milliseconds())
	return s.pg.InSnapshot(ctx, func(tx postgres.Tx) error {
		if _, err := tx.Tx.Tx.ExecContext(ctx, deadline); err != nil {
			return err
		}
		return read(ctx, tx)
	})
}

func readMovements(ctx context.Context, tx postgres.Tx, q *MovementQuery) (page MovementPage, err error) {
	query, args := listMovements(q)
	rows, err := tx.Tx.Tx.QueryContext(ctx, query, args...)
	if err != nil {
		return MovementPage{}, err
	}
	defer func() { _ = rows.Close() }()
	var behind bool
	found := make([]Movement, 0, q.Limit+1)
	for rows.Next() {
		var m Movement
		if err := rows.Scan(append([]any{&page.Now, &page.Total, &page.TotalAmount, &behind},
			movementFields(&m)...)...); err != nil {
			return MovementPage{}, err
		}
		if m.RailKey != "" { // an empty page still has one row, with NULLs
			found = append(found, m)
		}
	}
	page.Movements, page.Next, page.Prev = cutPage(found, q.Limit, q.Direction, behind, (*Movement).position)
	return page, rows.Err()
}

// ExplainListMovements is EXPLAIN (ANALYZE, BUFFERS) of the statement behind ListMovements, as
// JSON.
func (s *Store) ExplainListMovements(ctx context.Context, q MovementQuery) (plan []byte, err error) {
	query, args := listMovements(&q)
	err = s.pg.Do(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query, args...).Scan(&plan)
	})
	return plan, wrap("explain list movements", err)
}

// MovementsAfter returns the next movements of a range beyond a position, newest first:
// MaxMovements of them, or fewer at the end of the range. The zero position is the beginning.
func (s *Store) MovementsAfter(
	ctx context.Context, site SiteID, from, to *Millis, at MovementPosition,
) (movements []Movement, err error) {
	q := MovementQuery{SiteID: site, From: from, To: to, Direction: Forward, At: at}
	span := q.span()
	err = s.inMovements(ctx, func(ctx context.Context, tx postgres.Tx) error {
		// The index has the order of the list, so that its scan ends at the limit. The planner does
		// not know the range and would sort all of it.
		if _, err := tx.Tx.Tx.ExecContext(ctx, "SET LOCAL enable_bitmapscan = off"); err != nil {
			return err
		}
		rows, err := tx.Tx.Tx.QueryContext(ctx, `
SELECT `+movementColumns+` FROM ledger_entries l
WHERE l.site_id = $1 AND (l.recorded_at, l.rail_key) < ($2, $3) AND l.recorded_at >= $4
ORDER BY l.recorded_at DESC, l.rail_key DESC LIMIT `+strconv.Itoa(MaxMovements),
			site, span.ahead.at, span.ahead.key, span.from)
		if err != nil {
			return err
		}
		movements, err = scanAll(rows, movementFields)
		return err
	})
	return movements, wrap("movements after", err)
}
