package models

import (
	"context"
	_ "embed" // statements
	"strings"

	"partnerbilling/models/postgres"
)

// splitLinksAbove is the number of links of one state above which a part of a node becomes a node
// of its own. It also bounds, roughly, the links that a query counts one by one at each end of a
// time range.
const splitLinksAbove = 512

// linkCountsLock is the advisory lock of the counts. It admits one fold at a time. Writers of links
// do not take it.
const linkCountsLock = 0x5376634c696e6b // "SvcLink"

// linkPart is the part of a node of a level, from 1 on, that holds a link.
const linkPart = `(invited_at >> 7 * (level - 1) & 127)::int + 1`

var (
	//go:embed customer_folded.sql
	foldedText string
	//go:embed customer_fold_parts.sql
	foldPartsText string
	//go:embed customer_fold.sql
	foldChangesText string
	//go:embed customer_make_nodes.sql
	makeNodesText string

	foldChangesSQL = postgres.SQL(withFoldedLinks(foldChangesText))
	makeNodesSQL   = postgres.SQL(withFoldedLinks(makeNodesText))

	tryLockCountsSQL = postgres.SQL(`SELECT pg_try_advisory_xact_lock(:lock)`)
	lockCountsSQL    = postgres.SQL(`SELECT pg_advisory_xact_lock(:lock) IS NOT NULL FROM sites WHERE id = :site`)
	dropTotalsSQL    = postgres.SQL(`DELETE FROM link_totals WHERE site_id = :site`)
	rootTotalSQL     = postgres.SQL(`
SELECT coalesce(sum(totals[128]), 0) FROM link_totals WHERE site_id = :site AND level = 6`)
	linkedSitesSQL = postgres.SQL(`
SELECT id FROM sites WHERE EXISTS (SELECT FROM customer_links WHERE site_id = sites.id)
    OR EXISTS (SELECT FROM link_totals WHERE site_id = sites.id) ORDER BY id`)
)

// withFoldedLinks replaces the variables of a statement about the counts. FOLDED is a query of the
// link counts that each part of the nodes in CTE "nodes" must show.
func withFoldedLinks(text string) string {
	text = strings.NewReplacer(":FOLDED", strings.TrimSpace(foldedText), ":WRITTEN", foldPartsText).Replace(text)
	return strings.ReplaceAll(text, ":PART", linkPart)
}

// linkNode identifies a node of the counts: its rows of link_totals.
type linkNode struct {
	SiteID SiteID
	Level  int
	Bucket int64
}

// FoldLinkChanges moves at most limit changes of links into the counts and returns their number.
// The totals of lists add the changes that are not folded yet; folding keeps their number small.
// While another call folds, it moves none.
func (s *Store) FoldLinkChanges(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		n = 0
		var mine bool
		err := tx.Get(ctx, tryLockCountsSQL, postgres.Args{"lock": linkCountsLock}, &mine)
		if err != nil || !mine {
			return err
		}
		var oversized []linkNode
		n, oversized, err = linkNodes(ctx, tx, foldChangesSQL, postgres.Args{"limit": limit, "split_above": s.splitAbove})
		if err != nil {
			return err
		}
		return s.makeLinkNodes(ctx, tx, oversized)
	})
	return n, wrap("fold link changes", err)
}

// makeLinkNodes makes nodes, then nodes for their oversized parts, until no part is oversized.
func (s *Store) makeLinkNodes(ctx context.Context, tx postgres.Tx, nodes []linkNode) error {
	if len(nodes) == 0 {
		return nil
	}
	ctx, err := tx.AllowLongStatements(ctx, postgres.LongStatement) // a node may have to count all links of a Site
	for len(nodes) > 0 && err == nil {
		var (
			sites   []SiteID
			levels  []int
			buckets []int64
		)
		for _, n := range nodes {
			sites, levels, buckets = append(sites, n.SiteID), append(levels, n.Level), append(buckets, n.Bucket)
		}
		_, nodes, err = linkNodes(ctx, tx, makeNodesSQL, postgres.Args{
			"sites": sites, "levels": levels, "buckets": buckets, "split_above": s.splitAbove,
		})
	}
	return err
}

// linkNodes runs a statement that returns a number of changes, and oversized parts as nodes.
func linkNodes(
	ctx context.Context, tx postgres.Tx, statement postgres.Statement, args postgres.Args,
) (moved int, nodes []linkNode, err error) {
	var rows []struct {
		linkNode
		Moved     int
		Oversized bool // the row names an oversized part
	}
	if err := tx.Select(ctx, statement, args, &rows); err != nil {
		return 0, nil, err
	}
	for _, row := range rows {
		moved = row.Moved
		if row.Oversized {
			nodes = append(nodes, row.linkNode)
		}
	}
	return moved, nodes, nil
}

// RecountLinks rebuilds the counts of a Site's links and returns the number of links. Writers and
// readers proceed meanwhile: readers see the old counts until it commits. ErrNotFound: there is no
// such Site.
func (s *Store) RecountLinks(ctx context.Context, site SiteID) (links int64, err error) {
	actFrom(ctx).about(SubjectSite, site.String()).in(OrganisationID{}, site)
	err = s.act(ctx, func(tx postgres.Tx) error {
		ctx, err := tx.AllowLongStatements(ctx, postgres.LongStatement)
		if err != nil {
			return err
		}
		var there bool
		err = tx.Get(ctx, lockCountsSQL, postgres.Args{"lock": linkCountsLock, "site": site}, &there)
		if err != nil {
			return notFound(err, "site")
		}
		if _, err := tx.Run(ctx, dropTotalsSQL, postgres.Args{"site": site}); err != nil {
			return err
		}
		if err := s.makeLinkNodes(ctx, tx, []linkNode{{SiteID: site, Level: 6}}); err != nil {
			return err
		}
		return tx.Get(ctx, rootTotalSQL, postgres.Args{"site": site}, &links)
	})
	return links, wrap("recount links", err)
}

// LinkedSites returns the Sites that have links or counts of links.
func (s *Store) LinkedSites(ctx context.Context) (sites []SiteID, err error) {
	err = s.pg.Select(ctx, linkedSitesSQL, nil, &sites)
	return sites, wrap("linked Sites", err)
}
