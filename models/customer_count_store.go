package models

import (
	"context"
	"database/sql"

	"partnerbilling/models/postgres"
)

// splitLinksAbove is the number of links of one state above which a part of a node becomes a node
// of its own. It also bounds, roughly, the links that a query counts one by one at each end of a
// time range.
const splitLinksAbove = 512

// linkCountsLock is the advisory lock of the counts. It admits one fold at a time. Writers of links
// do not take it.
const linkCountsLock = 0x5376634c696e6b // "SvcLink"

// foldLinkChanges moves changes into their root node and every existing node below. It returns the
// number of changes moved, and oversized parts.
const foldLinkChanges = `
WITH gone AS (
	DELETE FROM link_changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM link_changes ORDER BY site_id LIMIT $1))
	RETURNING site_id, invited_at, state, change
),
changed AS (
	SELECT site_id, level, invited_at >> 7 * level AS bucket, ` + linkPart + ` AS part, state, sum(change)::int AS change
	FROM gone CROSS JOIN generate_series(1, 6) AS level GROUP BY 1, 2, 3, 4, 5
),
parts AS (
	SELECT * FROM changed AS c WHERE level = 6 OR EXISTS (
		SELECT FROM link_totals AS n WHERE n.site_id = c.site_id AND n.level = c.level AND n.bucket = c.bucket)
),` + writeLinkTotals + `
SELECT n, site_id, level, bucket FROM (SELECT count(*) AS n FROM gone) AS counted LEFT JOIN oversized ON true`

// makeLinkNodes makes nodes that do not exist yet, and returns oversized parts.
const makeLinkNodes = `
WITH nodes AS (SELECT * FROM unnest($1::uuid[], $3::int[], $4::bigint[]) AS n (site_id, level, bucket)),
parts AS (` + foldedLinks + `),` + writeLinkTotals + `
SELECT 0, site_id, level, bucket FROM oversized`

// linkPart is the part of a node of a level, from 1 on, that holds a link.
const linkPart = `(invited_at >> 7 * (level - 1) & 127)::int + 1`

// foldedLinks are the link counts that each part of a node must show: all links less the unfolded
// changes. It goes state by state, so that index-only scans suffice.
const foldedLinks = `
	SELECT n.site_id, n.level, n.bucket, p.part, p.state, p.change FROM nodes AS n CROSS JOIN LATERAL (
		SELECT ` + linkPart + ` AS part, state, sum(change)::int AS change FROM (
			SELECT invited_at, s.state, 1 AS change FROM unnest(enum_range(NULL::link_state)) AS s(state)
			CROSS JOIN LATERAL (SELECT invited_at FROM customer_links WHERE site_id = n.site_id AND state = s.state
				AND invited_at >= n.bucket << 7 * n.level AND invited_at < (n.bucket + 1) << 7 * n.level) AS l
			UNION ALL
			SELECT invited_at, state, -change FROM link_changes WHERE site_id = n.site_id
				AND invited_at >= n.bucket << 7 * n.level AND invited_at < (n.bucket + 1) << 7 * n.level
		) AS l GROUP BY 1, 2) AS p`

// writeLinkTotals adds changes in parts of nodes to their totals. Oversized parts must become nodes
// and are not yet: parts with more than $2 links of a state, or more than 8 where parts span days
// or years. A Site with thousands of links thus has counts as deep as one with millions. A Site
// with a handful has only a root.
const writeLinkTotals = `
written AS (
	INSERT INTO link_totals (site_id, level, bucket, state, totals)
	SELECT site_id, level, bucket, state, add_links((SELECT totals FROM link_totals AS t WHERE t.site_id = p.site_id
		AND t.level = p.level AND t.bucket = p.bucket AND t.state = p.state), array_agg(part), array_agg(change))
	FROM parts AS p GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
	ON CONFLICT (site_id, level, bucket, state) DO UPDATE SET totals = excluded.totals
	RETURNING site_id, level, bucket, state, totals
),
oversized AS (
	SELECT DISTINCT site_id, level - 1 AS level, bucket << 7 | part - 1 AS bucket
	FROM parts AS p JOIN written USING (site_id, level, bucket, state)
	WHERE level > 1 AND totals[part] - coalesce(totals[part - 1], 0) > CASE WHEN level > 4 THEN least($2, 8) ELSE $2 END
		AND NOT EXISTS (SELECT FROM link_totals AS n WHERE n.site_id = p.site_id AND n.level = p.level - 1
			AND n.bucket = p.bucket << 7 | part - 1)
)`

// linkNode identifies a node of the counts: its rows of link_totals.
type linkNode struct {
	site   SiteID
	level  int
	bucket int64
}

// FoldLinkChanges moves at most limit changes of links into the counts and returns their number.
// Totals include unfolded changes as well; folding keeps those few. While another call folds, it
// moves none.
func (s *Store) FoldLinkChanges(ctx context.Context, limit int) (n int, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		n = 0
		var mine bool
		err := tx.Tx.Tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1)", linkCountsLock).Scan(&mine)
		if err != nil || !mine {
			return err
		}
		var oversized []linkNode
		if n, oversized, err = linkNodes(ctx, tx, foldLinkChanges, limit, s.splitAbove); err != nil {
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
	ctx, err := tx.AllowLongStatements(ctx) // a node may have to count all links of a Site
	for len(nodes) > 0 && err == nil {
		var (
			sites   []SiteID
			levels  []int
			buckets []int64
		)
		for _, n := range nodes {
			sites, levels, buckets = append(sites, n.site), append(levels, n.level), append(buckets, n.bucket)
		}
		_, nodes, err = linkNodes(ctx, tx, makeLinkNodes, sites, s.splitAbove, levels, buckets)
	}
	return err
}

// linkNodes runs a statement that returns a number and oversized parts as nodes.
func linkNodes(ctx context.Context, tx postgres.Tx, query string, args ...any) (n int, nodes []linkNode, err error) {
	rows, err := tx.Tx.Tx.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var node linkNode
		var level, bucket sql.NullInt64
		if err := rows.Scan(&n, &node.site, &level, &bucket); err != nil {
			return 0, nil, err
		}
		if level.Valid {
			node.level, node.bucket = int(level.Int64), bucket.Int64
			nodes = append(nodes, node)
		}
	}
	return n, nodes, rows.Err()
}

// RecountLinks rebuilds the counts of a Site's links and returns the number of links. Writers and
// readers proceed meanwhile: readers see the old counts until it commits. ErrNotFound: there is no
// such Site.
func (s *Store) RecountLinks(ctx context.Context, site SiteID) (links int64, err error) {
	err = s.pg.InTx(ctx, func(tx postgres.Tx) error {
		ctx, err := tx.AllowLongStatements(ctx)
		if err != nil {
			return err
		}
		var there bool
		err = notFound(tx.Tx.Tx.QueryRowContext(ctx, "SELECT pg_advisory_xact_lock($1) IS NOT NULL FROM sites WHERE id = $2",
			linkCountsLock, site).Scan(&there), "site")
		if err == nil {
			_, err = tx.Tx.Tx.ExecContext(ctx, "DELETE FROM link_totals WHERE site_id = $1", site)
		}
		if err != nil {
			return err
		}
		if err := s.makeLinkNodes(ctx, tx, []linkNode{{site: site, level: 6}}); err != nil {
			return err
		}
		return tx.Tx.Tx.QueryRowContext(ctx,
			"SELECT coalesce(sum(totals[128]), 0) FROM link_totals WHERE site_id = $1 AND level = 6",
			site).Scan(&links)
	})
	return links, wrap("recount links", err)
}

// LinkedSites are the Sites that have links or counts of links.
func (s *Store) LinkedSites(ctx context.Context) (sites []SiteID, err error) {
	err = s.pg.Do(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, `
			SELECT id FROM sites WHERE EXISTS (SELECT FROM customer_links WHERE site_id = sites.id)
				OR EXISTS (SELECT FROM link_totals WHERE site_id = sites.id) ORDER BY id`)
		if err == nil {
			sites, err = scanAll(rows, func(id *SiteID) []any { return []any{id} })
		}
		return err
	})
	return sites, wrap("linked Sites", err)
}
