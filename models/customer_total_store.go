package models

import (
	"context"
	"database/sql"
	"fmt"

	"partnerbilling/models/postgres"
)

// rowsQuerier reads rows, in a transaction or from the pool.
type rowsQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ProveTotal counts the links that match a query one by one, and reads the total that a page would
// show, from one snapshot. It is for audits and tests: it reads every link of the state or range.
func (s *Store) ProveTotal(ctx context.Context, q LinkQuery) (total, counted int64, err error) {
	err = s.pg.InSnapshot(ctx, func(tx postgres.Tx) error {
		page, err := listLinks(ctx, tx.Tx.Tx, &q)
		if err != nil {
			return err
		}
		total = page.Total
		from, to := linkTimes(&q)
		return tx.Tx.Tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT count(*) FROM customer_links
			WHERE site_id = $1 AND invited_at BETWEEN $2 AND $3 AND %s`, linkStateAt[q.State]),
			q.SiteID, from, to, page.Now).Scan(&counted)
	})
	return total, counted, wrap("prove a total", err)
}

// linkStateAt are the conditions for effective states at a time, in their plainest form.
var linkStateAt = map[LinkState]string{
	"":          `$4::bigint IS NOT NULL`,
	LinkInvited: `state = 'invited' AND expires_at > $4`,
	LinkLinked:  `state = 'linked' AND $4::bigint IS NOT NULL`,
	LinkExpired: `(state = 'expired' OR state = 'invited' AND expires_at <= $4)`,
	LinkRevoked: `state = 'revoked' AND $4::bigint IS NOT NULL`,
}
