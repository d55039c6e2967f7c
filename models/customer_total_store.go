package models

import (
	"context"

	"partnerbilling/models/postgres"
)

// CompareTotals returns two totals of the links that match a query, both from one snapshot: total
// is what a page of ListLinks shows, and counted is a count of the links one by one. It is for
// tests and measurements: it reads every link of the state or range.
func (s *Store) CompareTotals(ctx context.Context, q LinkQuery) (total, counted int64, err error) {
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
	return total, counted, wrap("compare totals", err)
}

// countLinksSQL holds, for each effective state, the statement that counts its links at the time
// :now. Statements that need no time still name :now, so that all have the same arguments.
var countLinksSQL = map[LinkState]postgres.Statement{
	"":          countLinks(`:now::bigint IS NOT NULL`),
	LinkInvited: countLinks(`state = 'invited' AND expires_at > :now`),
	LinkLinked:  countLinks(`state = 'linked' AND :now::bigint IS NOT NULL`),
	LinkExpired: countLinks(`(state = 'expired' OR state = 'invited' AND expires_at <= :now)`),
	LinkRevoked: countLinks(`state = 'revoked' AND :now::bigint IS NOT NULL`),
}

// countLinks returns the statement that counts the links of a Site that meet a condition, by time
// of invitation.
func countLinks(condition string) postgres.Statement {
	return postgres.SQL(`SELECT count(*) FROM customer_links
WHERE site_id = :site AND invited_at BETWEEN :from AND :to AND ` + condition)
}
