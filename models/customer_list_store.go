package models

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// linkFilter selects links by one effective state, as LinkState.At defines it: the links of a
// stored state, without overdue links, or together with them.
type linkFilter struct {
	stored  string // condition on the stored state
	overdue overdueLinks
}

// overdueLinks is the treatment of invitations past their expiry that no sweep has recorded.
type overdueLinks int

const (
	overdueAlike overdueLinks = iota // counted by their stored state
	overdueLess
	overdueMore
)

// The condition hides the state from the planner. Otherwise it uses an index on expiry, reads every
// invitation and sorts, instead of reading one page from the ordered index.
var linkFilters = map[LinkState]linkFilter{
	"":          {stored: `true`},
	LinkInvited: {stored: `state = (SELECT 'invited'::link_state)`, overdue: overdueLess},
	LinkLinked:  {stored: `state = 'linked'`},
	LinkExpired: {stored: `state = 'expired'`, overdue: overdueMore},
	LinkRevoked: {stored: `state = 'revoked'`},
}

// sqlListLinks reads page, total and links in one statement, so that all come from one snapshot and
// one reading of the clock. Subselects read the clock, so that the index scan of the page ends at
// the limit. The query behind the position is ordered (EXISTS would drop that), so that the next
// index entry answers it. Overdue invitations are selected by expiry first, since that is the only
// selective condition. The limit is in the text: with a parameter, Postgres rejects the generic
// plan and plans each call anew.
//
// The total is the number of links invited before the end of the range less those before its
// beginning. For each bound, the CTE tree descends from the root (level 6) through the nodes that
// contain it, and adds the parts before it. Links after the start of the last part are counted one
// by one; unfolded changes before it are added.
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

// Fragments of sqlListLinks about overdue invitations.
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
	order := []string{"<ahead>", "<", "<order>", "DESC", "<end>", ">= $2", "<behind>", ">=", "<back>", "ASC",
		"<beginning>", "<= $3"}
	if q.Direction == Backward {
		order = []string{"<ahead>", ">", "<order>", "ASC", "<end>", "<= $3", "<behind>", "<=", "<back>", "DESC",
			"<beginning>", ">= $2"}
	}
	return strings.NewReplacer(append(order, "<limit>", strconv.Itoa(q.Limit+1))...).Replace(query)
}

// linkTimes are the bounds of a query as SQL parameters. Missing bounds include every invitation.
// An empty range ends right before its beginning.
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

// maxInvitedAt, in 2108, is later than any invitation. It ends a part of the root of the counts, so
// that no links are counted one by one after it.
const maxInvitedAt = Millis(127)<<35 - 1

// listLinksArgs are the parameters of sqlListLinks. An index scan starts at the position, so the
// position is moved into the time range. The first page of a walk does not look behind its
// position.
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

// lastLinkID sorts after every other id.
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

// ListLinks returns one page of a Site's links. A walk through the pages finds every link that
// matched throughout exactly once, despite concurrent changes.
func (s *Store) ListLinks(ctx context.Context, q LinkQuery) (page LinkPage, err error) {
	if _, ok := linkFilters[q.State]; !ok || q.Limit < 1 || q.Limit > 100 {
		return LinkPage{}, fmt.Errorf("models: list links: state %q, limit %d", q.State, q.Limit)
	}
	err = s.pg.Do(ctx, func() error {
		page, err = listLinks(ctx, s.db.DB, &q)
		return err
	})
	if err != nil {
		return LinkPage{}, fmt.Errorf("models: list links: %w", err)
	}
	return page, nil
}

// ExplainListLinks executes the statement of ListLinks under EXPLAIN (ANALYZE, BUFFERS) and returns
// the plan as JSON.
func (s *Store) ExplainListLinks(ctx context.Context, q LinkQuery) (plan []byte, err error) {
	err = s.pg.Do(ctx, func() error {
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
		if !l.ID.IsZero() { // an empty page still has one row, with NULLs
			found = append(found, l.effective(now))
		}
	}
	page := LinkPage{Total: total, Now: now}
	page.Links, page.Next, page.Prev = cutPage(found, q.Limit, q.Direction, behind, (*Link).position)
	return page, rows.Err()
}
