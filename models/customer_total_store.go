package models

import (
	"context"

	"partnerbilling/models/postgres"
)

// ProveTotal counts the links that match a query one by one, and reads the total that a page would
// show, from one snapshot. It is for audits and tests: it reads every link of the state or range.
func (s *Store) ProveTotal(ctx context.Context, q LinkQuery) (total, counted int64, err error) {
	err = s.pg.InSnapshot(ctx, func(tx postgres.Tx) error {
		page, err := listLinks(ctx, tx, &q)
		if err != nil {
			return err
		}
		total = page.Total
		span := q.span()
		return tx.Get(ctx, countLinksSQL[q.State], postgres.Args{
			"site": q.SiteID, "from": span.from, "to": span.to, "now": page.Now,
		}, &counted)
	})
	return total, counted, wrap("prove a total", err)
}

// countLinksSQL counts the links of an effective state at the time :now. Every statement has the
// argument :now, needed or not.
var countLinksSQL = map[LinkState]postgres.Statement{
	"":          countLinks(`:now::bigint IS NOT NULL`),
	LinkInvited: countLinks(`state = 'invited' AND expires_at > :now`),
	LinkLinked:  countLinks(`state = 'linked' AND :now::bigint IS NOT NULL`),
	LinkExpired: countLinks(`(state = 'expired' OR state = 'invited' AND expires_at <= :now)`),
	LinkRevoked: countLinks(`state = 'revoked' AND :now::bigint IS NOT NULL`),
}

func countLinks(condition string) postgres.Statement {
	return postgres.SQL(`SELECT count(*) FROM customer_links
WHERE site_id = :site AND invited_at BETWEEN :from AND :to AND ` + condition)
}
