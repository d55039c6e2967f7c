package models

import (
	"context"
	_ "embed" // statements
	"fmt"

	"github.com/google/uuid"

	"partnerbilling/models/postgres"
)

//go:embed customer_list.sql
var listLinksText string

// linkList is the statement that lists the links in one effective state, as LinkState.At defines
// it.
type linkList struct {
	listStatement
	overdue int // the argument :overdue, see customer_list.sql
}

// storedInvited is a condition on the stored state that hides its value from the planner. Otherwise
// the planner would use an index on expiry, and would read and sort all invitations, instead of
// reading one page from the ordered index.
const storedInvited = `state = (SELECT 'invited'::link_state)`

// linkLists holds the statement for each effective state; "" is all states.
var linkLists = map[LinkState]linkList{
	"":          newLinkList(`true`, 0),
	LinkInvited: newLinkList(storedInvited, -1),
	LinkLinked:  newLinkList(`state = 'linked'`, 0),
	LinkExpired: newLinkList(`state = 'expired'`, 1),
	LinkRevoked: newLinkList(`state = 'revoked'`, 0),
}

// newLinkList makes the statement of the links that meet a condition on the stored state. If
// overdue is negative, it leaves out invitations past their expiry.
func newLinkList(stored string, overdue int) linkList {
	matching := stored
	if overdue < 0 {
		matching += ` AND expires_at > (SELECT now FROM clock)`
	}
	return linkList{newListStatement(listLinksText, maxPage, ":STORED", stored, ":MATCHING", matching), overdue}
}

// maxInvitedAt, in 2108, is later than any invitation. It is the last millisecond of a part of the
// root node; see linkNode. A range up to it therefore counts no links one by one at its end.
const maxInvitedAt = Millis(127)<<35 - 1

// page returns what the query has in common with the queries of other lists.
func (q *LinkQuery) page() pageQuery[LinkID] {
	return pageQuery[LinkID]{q.InvitedFrom, q.InvitedTo, q.Direction, q.At, q.Limit}
}

// span returns the bounds of the query's index scans.
func (q *LinkQuery) span() listSpan[LinkID] { return q.page().span(maxInvitedAt, LinkID(uuid.Max)) }

// Statement returns the statement that ListLinks runs, with its arguments. It is exported for
// measurements of the plan.
func (q *LinkQuery) Statement() (postgres.Statement, postgres.Args) {
	list := linkLists[q.State]
	args := q.span().args(q.Limit)
	args["site"], args["overdue"] = q.SiteID, list.overdue
	return list.going(q.Direction), args
}

// ListLinks returns one page of a Site's customer links. A walk through the pages finds every link
// that matched throughout exactly once, despite concurrent changes.
func (s *Store) ListLinks(ctx context.Context, q LinkQuery) (LinkPage, error) {
	if _, ok := linkLists[q.State]; !ok || q.Limit < 1 || q.Limit > maxPage {
		return LinkPage{}, fmt.Errorf("models: list links: state %q, limit %d", q.State, q.Limit)
	}
	page, err := listLinks(ctx, s.pg, &q)
	return page, wrap("list links", err)
}

func listLinks(ctx context.Context, on postgres.Session, q *LinkQuery) (LinkPage, error) {
	list, args := q.Statement()
	var rows []*linkListRow
	if err := on.Select(ctx, list, args, &rows); err != nil {
		return LinkPage{}, err
	}
	return pageOf(rows, q.page(), (*CustomerLink).position), nil
}

// linkListRow is a row of a list statement: a link, with what the row repeats about the list.
type linkListRow struct {
	listHead
	CustomerLink
}

// item returns the link in its effective state; nil if the page is empty.
func (r *linkListRow) item() *CustomerLink {
	if r.ID.IsZero() {
		return nil
	}
	r.CustomerLink = r.effective(r.Now)
	return &r.CustomerLink
}
