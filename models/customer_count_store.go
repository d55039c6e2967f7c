package models

import (
	"context"
	_ "embed" // statements
	"strings"

	"partnerbilling/models/postgres"
)

const (
	// splitLinksAbove is the number of links of one state above which a part of a node becomes a
	// node of its own; see linkNode. It also bounds, roughly, the links that a query counts one by
	// one at each end of a time range.
	splitLinksAbove = 512
	// splitEarlyAbove is the limit instead of splitLinksAbove on level splitEarlyLevel and above. A
	// part there spans 3 days or a year. Its node is made early, while there are few links to
	// count.
	splitEarlyAbove = 8
	splitEarlyLevel = 5
)

// linkCountsLock is the key of the advisory lock that admits one fold or recount at a time. Writers
// of links do not acquire the lock.
const linkCountsLock = 0x5376634c696e6b // "SvcLink"

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

// withFoldedLinks replaces the variables in upper case of a statement about the counts. FOLDED
// becomes the query in customer_folded.sql: the counts that each part of the nodes in CTE "nodes"
// must show. WRITTEN becomes the CTEs in customer_fold_parts.sql, which add changes to the totals.
func withFoldedLinks(text string) string {
	return strings.NewReplacer(":FOLDED", strings.TrimSpace(foldedText), ":WRITTEN", foldPartsText).Replace(text)
}

// linkNode identifies a node of the counts of customer links. Each Site has a tree of nodes, by the
// time of invitation. A node covers 128^Level milliseconds, from Bucket * 128^Level on, in 128
// equal parts. For each state, a row of link_totals holds the number of links up to the end of each
// part. A part with many links also has a node of its own, one level down. The root has level 6 and
// bucket 0.
type linkNode struct {
	SiteID SiteID
	Level  int
	Bucket int64
}

// FoldLinkChanges moves at most limit rows of link_changes into the counts, and returns their
// number. A trigger writes these rows when a link is made or changes its state. Lists add them to
// their totals, so folding keeps them few. While another call folds or recounts, FoldLinkChanges
// moves none.
func (s *Store) FoldLinkChanges(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		n = 0
		var mine bool
		err := tx.Get(ctx, tryLockCountsSQL, postgres.Args{"lock": linkCountsLock}, &mine)
		if err != nil || !mine {
			return err
		}
		var oversized []linkNode
		n, oversized, err = s.addToCounts(ctx, tx, foldChangesSQL, postgres.Args{"limit": limit})
		if err != nil {
			return err
		}
		return s.makeLinkNodes(ctx, tx, oversized)
	})
	return n, wrap("fold link changes", err)
}

// makeLinkNodes makes the given nodes, and then nodes for their oversized parts, until no part is
// oversized.
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
		_, nodes, err = s.addToCounts(ctx, tx, makeNodesSQL, postgres.Args{
			"sites": sites, "levels": levels, "buckets": buckets,
		})
	}
	return err
}

// addToCounts runs foldChangesSQL or makeNodesSQL. It returns the number of changes moved, and the
// nodes to make of oversized parts.
func (s *Store) addToCounts(
	ctx context.Context, tx postgres.Tx, statement postgres.Statement, args postgres.Args,
) (moved int, nodes []linkNode, err error) {
	args["split_above"], args["early_split_above"], args["early_level"] = s.splitAbove, splitEarlyAbove, splitEarlyLevel
	var rows []struct {
		linkNode
		Moved     int
		Oversized bool // the row names a node to make
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

// RecountLinks rebuilds the counts of a Site from its links, and returns the number of links
// counted. Writers and readers of links proceed meanwhile: readers see the old counts until
// RecountLinks commits. ErrNotFound: there is no such Site.
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

// LinkedSites returns the Sites that have customer links, or counts of them.
func (s *Store) LinkedSites(ctx context.Context) (sites []SiteID, err error) {
	err = s.pg.Select(ctx, linkedSitesSQL, nil, &sites)
	return sites, wrap("linked Sites", err)
}
