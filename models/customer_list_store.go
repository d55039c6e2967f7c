package models

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// linkFilter is what listing by one effective state, as LinkState.At has it, takes: the links of a stored state, less
// those that are overdue, or and those that are overdue.
type linkFilter struct {
	stored  string // selects by the stored state
	overdue overdueLinks
}

// overdueLinks says how invitations past expiry that no sweep has seen yet count.
type overdueLinks int

const (
	overdueAlike overdueLinks = iota // as what they are stored as
	overdueLess
	overdueMore
)

// Invitations are selected by a state that the planner does not see: else it takes the indexes on the expiry of what is invited to be
// the shortest way, reads every invitation through them and sorts, where the index in order has a page after a few.
var linkFilters = map[LinkState]linkFilter{
	"":          {stored: `true`},
	LinkInvited: {stored: `state = (SELECT 'invited'::link_state)`, overdue: overdueLess},
	LinkLinked:  {stored: `state = 'linked'`},
	LinkExpired: {stored: `state = 'expired'`, overdue: overdueMore},
	LinkRevoked: {stored: `state = 'revoked'`},
}

// sqlListLinks is one statement, so that page, total and links to other pages come from one snapshot and one reading of
// the clock. The clock is read in subselects, not joined, so that the page ends its index scan at the limit; and what lies
// behind is asked for in order (EXISTS would drop that), so that the index's next entry answers. Overdue invitations are found by
// their expiry first, whatever the planner thinks of the other conditions: only so they are few. The limit is in the text:
// of one that it does not know, Postgres thinks that a plan for all values is dear, and plans each time anew.
//
// The total is what was invited before the end of the range less what was invited before its beginning. For each of the
// two, tree goes from the root (level 6) down through the nodes that hold it, adding up the parts that lie before it; from the start of the
// part where that ends on, links are counted out, and up to there the changes that are not folded yet are added.
const sqlListLinks = `
WITH RECURSIVE clock AS MATERIALIZED (SELECT svc_now() AS now),
overdue AS MATERIALIZED (
	SELECT invited_at, id, customer_reference, expires_at FROM customer_links
	WHERE site_id = $1 AND state = 'invited' AND expires_at <= (SELECT now FROM clock)
),
tree AS (
	SELECT at, sign, 7 AS level, 0::bigint AS before, true AS found
	FROM (VALUES ($2::bigint, -1), ($3::bigint + 1, 1)) AS b (at, sign) WHERE at > 0
	UNION ALL
	SELECT t.at, t.sign, t.level - 1, n.before, n.found
	FROM tree t CROSS JOIN LATERAL (
		SELECT coalesce(sum(totals[t.at >> 7 * (t.level - 2) & 127]), 0)::bigint AS before, count(*) > 0 AS found
		FROM link_totals WHERE site_id = $1 AND level = t.level - 1 AND bucket = t.at >> 7 * (t.level - 1) AND <stored>
	) AS n WHERE t.found
),
leaf AS MATERIALIZED (SELECT at, sign, at >> 7 * level << 7 * level AS start FROM tree WHERE NOT found),
total AS (
	SELECT coalesce(sum(n), 0) AS n FROM (
		SELECT sign * before AS n FROM tree
		UNION ALL
		SELECT sign * change FROM leaf CROSS JOIN LATERAL (
			SELECT sum(change) AS change FROM link_changes WHERE site_id = $1 AND invited_at < start AND <stored>) AS c
		UNION ALL
		SELECT sign * links FROM leaf CROSS JOIN LATERAL (
			SELECT count(*) AS links FROM customer_links
			WHERE site_id = $1 AND invited_at >= start AND invited_at < at AND start < at AND <stored>) AS l<overdue total>
	) AS parts
),
page AS (
	SELECT * FROM (
		(SELECT id, customer_reference, state, invited_at, expires_at, linked_at FROM customer_links
		WHERE site_id = $1 AND (invited_at, id) <ahead> ($4, $5) AND invited_at <end> AND <matching>
		ORDER BY invited_at <order>, id <order> LIMIT <limit>)<overdue page>
	) AS p ORDER BY invited_at <order>, id <order> LIMIT <limit>
)
SELECT clock.now, (SELECT n FROM total)::bigint,
	(SELECT true FROM customer_links WHERE site_id = $1 AND (invited_at, id) <behind> ($6, $7) AND invited_at <beginning>
		AND $6 <beginning> AND <matching> ORDER BY invited_at <back>, id <back> LIMIT 1) IS NOT NULL<overdue behind>,
	page.id, coalesce(customer_reference, ''), coalesce(state, 'invited'), coalesce(invited_at, 0),
	coalesce(expires_at, 0), coalesce(linked_at, 0)
FROM clock LEFT JOIN page ON true
ORDER BY page.invited_at DESC, page.id DESC`

// What sqlListLinks has of overdue invitations.
const (
	overdueTotal = `
		UNION ALL
		SELECT <overdue sign> * count(*) FROM overdue WHERE invited_at BETWEEN $2 AND $3`
	overduePage = `
		UNION ALL
		SELECT id, customer_reference, 'invited', invited_at, expires_at, NULL FROM overdue
		WHERE (invited_at, id) <ahead> ($4, $5) AND invited_at <end>`
	overdueBehind = `
		OR EXISTS (SELECT FROM overdue WHERE (invited_at, id) <behind> ($6, $7) AND invited_at <beginning>)`
)

func listLinksSQL(q *LinkQuery) string {
	f := linkFilters[q.State]
	matching, total, page, behind := f.stored, "", "", ""
	switch f.overdue {
	case overdueLess:
		matching += ` AND expires_at > (SELECT now FROM clock)`
		total = strings.Replace(overdueTotal, "<overdue sign>", "-1", 1)
	case overdueMore:
		total, page, behind = strings.Replace(overdueTotal, "<overdue sign>", "1", 1), overduePage, overdueBehind
	case overdueAlike:
	}
	query := strings.NewReplacer("<overdue total>", total, "<overdue page>", page, "<overdue behind>", behind,
		"<stored>", f.stored, "<matching>", matching).Replace(sqlListLinks)
	order := []string{"<ahead>", "<", "<order>", "DESC", "<end>", ">= $2", "<behind>", ">=", "<back>", "ASC", "<beginning>", "<= $3"}
	if q.Direction == Backward {
		order = []string{"<ahead>", ">", "<order>", "ASC", "<end>", "<= $3", "<behind>", "<=", "<back>", "DESC", "<beginning>", ">= $2"}
	}
	return strings.NewReplacer(append(order, "<limit>", strconv.Itoa(q.Limit+1))...).Replace(query)
}

// linkTimes are the bounds of a query for Postgres: every invitation lies between those that are not given, and a range
// of nothing ends right before it begins.
func linkTimes(q *LinkQuery) (from, to Millis) {
	from, to = 0, maxInvitedAt
	if q.InvitedFrom != nil {
		from = min(max(*q.InvitedFrom, 0), maxInvitedAt)
	}
	if q.InvitedTo != nil {
		to = min(*q.InvitedTo, maxInvitedAt)
	}
	return from, max(to, from-1)
}

// maxInvitedAt, in 2108, is later than any invitation, and where a part of the root of the counts ends: nothing is counted out behind it.
const maxInvitedAt = Millis(127)<<35 - 1

// listLinksArgs are the parameters of sqlListLinks. An index scan begins at a position, and would read on from there if the range
// of time began later: so the position is never outside of the range. Behind a walk's first page nothing is looked for.
func listLinksArgs(q *LinkQuery) []any {
	from, to := linkTimes(q)
	ahead, behind := q.From, q.From
	first := q.From == LinkPosition{}
	if q.Direction == Backward {
		if first {
			behind.InvitedAt = -1
		}
		ahead, behind = later(ahead, LinkPosition{from - 1, lastLinkID}), earlier(behind, LinkPosition{to, lastLinkID})
	} else {
		if first {
			ahead.InvitedAt, behind.InvitedAt = math.MaxInt64, math.MaxInt64
		}
		ahead, behind = earlier(ahead, LinkPosition{to + 1, LinkID{}}), later(behind, LinkPosition{from, LinkID{}})
	}
	return []any{q.SiteID, from, to, ahead.InvitedAt, ahead.ID, behind.InvitedAt, behind.ID}
}

// lastLinkID sorts after every other.
var lastLinkID = LinkID(uuid.Max)

func earlier(p, q LinkPosition) LinkPosition {
	if p.compare(q) < 0 {
		return p
	}
	return q
}

func later(p, q LinkPosition) LinkPosition {
	if p.compare(q) > 0 {
		return p
	}
	return q
}

// ListLinks is one page of a Site's links. A walk from page to page finds every link that matched throughout exactly
// once, whatever is created or changed meanwhile.
func (s *Store) ListLinks(ctx context.Context, q LinkQuery) (page LinkPage, err error) {
	if _, ok := linkFilters[q.State]; !ok || q.Limit < 1 || q.Limit > 100 {
		return LinkPage{}, fmt.Errorf("models: list links: state %q, limit %d", q.State, q.Limit)
	}
	err = s.statement(ctx, func() error {
		page, err = listLinks(ctx, s.db.DB, &q)
		return err
	})
	if err != nil {
		return LinkPage{}, fmt.Errorf("models: list links: %w", err)
	}
	return page, nil
}

// ExplainListLinks is what Postgres tells of the statement behind ListLinks, having run it: EXPLAIN (ANALYZE, BUFFERS), as JSON.
func (s *Store) ExplainListLinks(ctx context.Context, q LinkQuery) (plan []byte, err error) {
	err = s.statement(ctx, func() error {
		return s.db.DB.QueryRowContext(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+listLinksSQL(&q),
			listLinksArgs(&q)...).Scan(&plan)
	})
	return plan, wrap("explain list links", err)
}

func listLinks(ctx context.Context, db rowsQuerier, q *LinkQuery) (LinkPage, error) {
	rows, err := db.QueryContext(ctx, listLinksSQL(q), listLinksArgs(q)...)
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
	page := LinkPage{Total: total, Now: now}
	page.Links, page.Next, page.Prev = cutPage(found, q.Limit, q.Direction, behind, (*Link).position)
	return page, rows.Err()
}
