package models

import (
	"context"
	"fmt"
	"math"
	"strings"
)

// linkStateConditions select by effective state, as LinkState.At has it.
var linkStateConditions = map[LinkState]string{
	"":          `true`,
	LinkInvited: `state = 'invited' AND expires_at > (SELECT now FROM clock)`,
	LinkLinked:  `state = 'linked'`,
	LinkExpired: `state IN ('expired', 'invited') AND (state = 'expired' OR expires_at <= (SELECT now FROM clock))`,
	LinkRevoked: `state = 'revoked'`,
}

// listLinks is one statement, so that page, total and links to other pages come from one snapshot and one reading of
// the clock. The clock is read in subselects, not joined, so that the page ends its index scan at the limit; and what lies
// behind is asked for in order (EXISTS would drop that), so that the index's next entry answers.
const listLinks = `
WITH clock AS MATERIALIZED (SELECT svc_now() AS now),
matching AS NOT MATERIALIZED (
	SELECT id, customer_reference, state, invited_at, expires_at, linked_at FROM customer_links
	WHERE site_id = $1 AND invited_at BETWEEN $2 AND $3 AND <state>
),
page AS (
	SELECT * FROM matching WHERE (invited_at, id) <ahead> ($4, $5)
	ORDER BY invited_at <order>, id <order> LIMIT $6
)
SELECT clock.now, (SELECT count(*) FROM matching),
	(SELECT true FROM matching WHERE (invited_at, id) <behind> ($4, $5) ORDER BY invited_at <back>, id <back> LIMIT 1) IS NOT NULL,
	page.id, coalesce(customer_reference, ''), coalesce(state, 'invited'), coalesce(invited_at, 0),
	coalesce(expires_at, 0), coalesce(linked_at, 0)
FROM clock LEFT JOIN page ON true
ORDER BY page.invited_at DESC, page.id DESC`

func listLinksSQL(state LinkState, d Direction) string {
	pairs := []string{"<state>", linkStateConditions[state], "<ahead>", "<", "<order>", "DESC", "<behind>", ">=", "<back>", "ASC"}
	if d == Backward {
		pairs = []string{"<state>", linkStateConditions[state], "<ahead>", ">", "<order>", "ASC", "<behind>", "<=", "<back>", "DESC"}
	}
	return strings.NewReplacer(pairs...).Replace(listLinks)
}

// ListLinks is one page of a Site's links. A walk from page to page finds every link that matched throughout exactly
// once, whatever is created or changed meanwhile.
func (s *Store) ListLinks(ctx context.Context, q LinkQuery) (page LinkPage, err error) {
	if _, ok := linkStateConditions[q.State]; !ok || q.Limit < 1 || q.Limit > 100 {
		return LinkPage{}, fmt.Errorf("models: list links: state %q, limit %d", q.State, q.Limit)
	}
	err = s.statement(ctx, func() error {
		page, err = s.listLinks(ctx, &q)
		return err
	})
	if err != nil {
		return LinkPage{}, fmt.Errorf("models: list links: %w", err)
	}
	return page, nil
}

func (s *Store) listLinks(ctx context.Context, q *LinkQuery) (LinkPage, error) {
	at := q.From
	if at == (LinkPosition{}) && q.Direction != Backward {
		at = LinkPosition{InvitedAt: math.MaxInt64}
	}
	from, to := Millis(math.MinInt64), Millis(math.MaxInt64)
	if q.InvitedFrom != nil {
		from = *q.InvitedFrom
	}
	if q.InvitedTo != nil {
		to = *q.InvitedTo
	}
	rows, err := s.db.DB.QueryContext(ctx, listLinksSQL(q.State, q.Direction),
		q.SiteID, from, to, at.InvitedAt, at.ID, q.Limit+1)
	if err != nil {
		return LinkPage{}, err
	}
	defer func() { _ = rows.Close() }()
	var (
		now    Millis
		total  int64
		behind bool
		found  = make([]Link, 0, q.Limit+1)
	)
	for rows.Next() {
		l := Link{SiteID: q.SiteID}
		if err := rows.Scan(&now, &total, &behind, &l.ID, &l.CustomerReference, &l.State, &l.InvitedAt,
			&l.ExpiresAt, &l.LinkedAt); err != nil {
			return LinkPage{}, err
		}
		if !l.ID.IsZero() { // a page without links is one row of nothing
			found = append(found, l.effective(now))
		}
	}
	page := newLinkPage(q, found, total, behind)
	page.Now = now
	return page, rows.Err()
}
