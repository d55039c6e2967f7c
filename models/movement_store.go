package models

import (
	"context"
	_ "embed" // statements
	"fmt"
	"strconv"
	"time"

	"partnerbilling/models/postgres"
)

// movementsWithin is the time limit of each statement that reads movements. The totals of
// ListMovements take time proportional to the range.
const movementsWithin = 5 * time.Second

var (
	//go:embed movement_list.sql
	movementListText string
	listMovementsSQL = newListStatement(movementListText, MaxMovements)

	movementsAfterSQL = postgres.SQL(`
SELECT l.rail_key, l.recorded_at, l.amount, l.currency, l.batch_reference, l.row_reference, l.customer_reference,
       l.payment_intent_id, l.order_id
FROM ledger_entries l
WHERE l.site_id = :site AND (l.recorded_at, l.rail_key) < (:ahead_at, :ahead_key) AND l.recorded_at >= :from
ORDER BY l.recorded_at DESC, l.rail_key DESC LIMIT ` + strconv.Itoa(MaxMovements))
)

func (q *MovementQuery) page() pageQuery[string] {
	return pageQuery[string]{q.From, q.To, q.Direction, q.At, q.Limit}
}

// span returns the query's span. Every rail key sorts below the highest key, DEL: rail keys are
// letters, digits, hyphens and underscores.
func (q *MovementQuery) span() listSpan[string] { return q.page().span(maxListTime, "\x7f") }

func (q *MovementQuery) statement() (postgres.Statement, postgres.Args) {
	args := q.span().args(q.Limit)
	args["site"] = q.SiteID
	return listMovementsSQL.going(q.Direction), args
}

// ListMovements returns one page of a Site's movements, with exact totals of the range. A walk
// through all pages returns each movement that was recorded before the walk exactly once.
// ErrUnavailable also means that totalling the range takes too long.
func (s *Store) ListMovements(ctx context.Context, q MovementQuery) (MovementPage, error) {
	if q.Limit < 1 || q.Limit > MaxMovements {
		return MovementPage{}, fmt.Errorf("models: list movements: limit %d", q.Limit)
	}
	var rows []*movementListRow
	err := s.readMovements(ctx, func(tx postgres.Tx) error {
		rows = nil
		list, args := q.statement()
		return tx.Select(ctx, list, args, &rows)
	})
	if err != nil {
		return MovementPage{}, wrap("list movements", err)
	}
	return MovementPage{pageOf(rows, q.page(), (*Movement).position), rows[0].TotalAmount}, nil
}

// movementListRow is a row of movement_list.sql.
type movementListRow struct {
	listHead
	Movement
	TotalAmount Amount
}

func (r *movementListRow) item() *Movement {
	if r.RailKey == "" {
		return nil
	}
	return &r.Movement
}

// readMovements runs read on one snapshot, with movementsWithin as the limit of each statement.
func (s *Store) readMovements(ctx context.Context, read func(tx postgres.Tx) error) error {
	return s.pg.InSnapshot(ctx, func(tx postgres.Tx) error {
		if err := tx.LimitStatements(ctx, movementsWithin); err != nil {
			return err
		}
		return read(tx)
	})
}

// MovementsAfter returns the movements of a time range that follow a position, newest first:
// MaxMovements of them, or fewer at the end of the range. from and to are inclusive, and nil is no
// bound. The zero position is the newest end of the range.
func (s *Store) MovementsAfter(
	ctx context.Context, site SiteID, from, to *Millis, at MovementPosition,
) (movements []Movement, err error) {
	q := MovementQuery{SiteID: site, From: from, To: to, Direction: Forward, At: at}
	span := q.span()
	args := postgres.Args{"site": site, "from": span.from, "ahead_at": span.ahead.At, "ahead_key": span.ahead.Key}
	err = s.readMovements(ctx, func(tx postgres.Tx) error {
		// An index scan reads the list in order and ends at the limit. The planner does not know
		// the range. It would read the whole range with a bitmap scan and sort it.
		if _, err := tx.ExecContext(ctx, "SET LOCAL enable_bitmapscan = off"); err != nil {
			return err
		}
		movements = nil
		return tx.Select(ctx, movementsAfterSQL, args, &movements)
	})
	return movements, wrap("movements after", err)
}
