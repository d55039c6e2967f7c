package models

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
)

// crowdedNode is how many links a node of the counts may have before it is divided, and so the most that are counted out
// at either end of a range of time. The 128 parts of a crowded node are rows then, on two or three pages.
const crowdedNode = 2048

// linkCountsLock is the advisory lock under which counts are changed: one folds at a time. Writers of links do not take it.
const linkCountsLock = 0x5376634c696e6b // "SvcLink"

// foldLinkChanges moves changes into the root that they belong to and into every node below it that is there, and returns
// the nodes that this has left, or found, crowded.
const foldLinkChanges = `
WITH gone AS (
	DELETE FROM link_changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM link_changes ORDER BY site_id LIMIT $1))
	RETURNING site_id, invited_at, state, change
),
counted AS (SELECT count(*) AS n FROM gone),
sums AS (
	SELECT site_id, level, invited_at >> 7 * level AS bucket, ` + linkSums + `
	FROM gone CROSS JOIN generate_series(0, 6) AS level
	GROUP BY 1, 2, 3
),
moved AS (
	INSERT INTO link_counts AS c (site_id, level, bucket, invited, linked, expired, revoked)
	SELECT site_id, level, bucket, invited, linked, expired, revoked FROM sums s
	WHERE level = 6 OR EXISTS (SELECT FROM link_counts above WHERE above.site_id = s.site_id
		AND above.level = s.level + 1 AND above.bucket = s.bucket >> 7 AND above.divided)
	ORDER BY site_id, level, bucket
	ON CONFLICT (site_id, level, bucket) DO UPDATE SET invited = c.invited + excluded.invited,
		linked = c.linked + excluded.linked, expired = c.expired + excluded.expired, revoked = c.revoked + excluded.revoked
	RETURNING *
)
SELECT n, site_id, level, bucket FROM counted LEFT JOIN moved
	ON level > 0 AND NOT divided AND invited + linked + expired + revoked > $2`

// linkSums are the columns of link_counts, summed over rows of changes.
const linkSums = `coalesce(sum(change) FILTER (WHERE state = 'invited'), 0) AS invited,
	coalesce(sum(change) FILTER (WHERE state = 'linked'), 0) AS linked,
	coalesce(sum(change) FILTER (WHERE state = 'expired'), 0) AS expired,
	coalesce(sum(change) FILTER (WHERE state = 'revoked'), 0) AS revoked`

// foldedLinks are the links that the counts must show, as changes from none: all that there are, less the changes that are not
// folded yet. Going state by state, the index answers alone.
const foldedLinks = `
	SELECT invited_at, s.state, 1 AS change FROM unnest(enum_range(NULL::link_state)) AS s(state)
	CROSS JOIN LATERAL (SELECT invited_at FROM customer_links WHERE site_id = n.site_id AND state = s.state
		AND invited_at >= n.bucket << 7 * n.level AND invited_at < (n.bucket + 1) << 7 * n.level) AS l
	UNION ALL
	SELECT invited_at, state, -change FROM link_changes WHERE site_id = n.site_id
		AND invited_at >= n.bucket << 7 * n.level AND invited_at < (n.bucket + 1) << 7 * n.level`

// markLinkCountsDivided promises parts to nodes. Those that are written divided have it from the start, so that no dead versions of
// rows stand between those that a range of time reads.
const markLinkCountsDivided = `
UPDATE link_counts c SET divided = true
FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS n(site_id, level, bucket)
WHERE c.site_id = n.site_id AND c.level = n.level AND c.bucket = n.bucket AND NOT c.divided`

// divideLinkCounts gives nodes that are marked as divided their parts, and returns those that are divided in their turn.
const divideLinkCounts = `
WITH parts AS (
	INSERT INTO link_counts (site_id, level, bucket, divided, invited, linked, expired, revoked)
	SELECT site_id, level - 1, p.bucket, level > 1 AND invited + linked + expired + revoked > $4, invited, linked, expired, revoked
	FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS n(site_id, level, bucket) CROSS JOIN LATERAL (
		SELECT invited_at >> 7 * (n.level - 1) AS bucket, ` + linkSums + ` FROM (` + foldedLinks + `) AS f GROUP BY 1
	) AS p ORDER BY 1, 2, 3
	RETURNING *
)
SELECT 0, site_id, level, bucket FROM parts WHERE divided`

// linkNode names a row of link_counts.
type linkNode struct {
	site   SiteID
	level  int
	bucket int64
}

// FoldLinkChanges moves what has happened to links into their counts, at most limit changes, and reports how many. What
// nobody has folded yet is in every total all the same; folding keeps it little. While another call folds, it moves none.
func (s *Store) FoldLinkChanges(ctx context.Context, limit int) (n int, err error) {
	err = s.inTx(ctx, func(tx bun.Tx) error {
		n = 0
		var mine bool
		err := tx.Tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1)", linkCountsLock).Scan(&mine)
		if err != nil || !mine {
			return err
		}
		var crowded []linkNode
		if n, crowded, err = linkNodes(ctx, tx, foldLinkChanges, limit, s.crowded); err != nil {
			return err
		}
		return s.divideCrowded(ctx, tx, crowded)
	})
	return n, wrap("fold link changes", err)
}

// divideCrowded divides nodes that were one so far.
func (s *Store) divideCrowded(ctx context.Context, tx bun.Tx, nodes []linkNode) error {
	if len(nodes) == 0 {
		return nil
	}
	if _, err := tx.Tx.ExecContext(ctx, "SET LOCAL statement_timeout = 0"); err != nil { // after a migration it is all links
		return err
	}
	sites, levels, buckets := linkNodeColumns(nodes)
	res, err := tx.Tx.ExecContext(ctx, markLinkCountsDivided, sites, levels, buckets)
	if err != nil {
		return err
	}
	if marked, err := res.RowsAffected(); err != nil || marked != int64(len(nodes)) {
		return errors.Join(err, fmt.Errorf("%d of %d crowded counts could be divided", marked, len(nodes)))
	}
	return s.divideLinkNodes(ctx, tx, nodes)
}

// divideLinkNodes makes the parts of nodes that are marked as divided, and the parts of those that are crowded, until none is.
func (s *Store) divideLinkNodes(ctx context.Context, tx bun.Tx, nodes []linkNode) (err error) {
	for len(nodes) > 0 && err == nil {
		sites, levels, buckets := linkNodeColumns(nodes)
		_, nodes, err = linkNodes(ctx, tx, divideLinkCounts, sites, levels, buckets, s.crowded)
	}
	return err
}

func linkNodeColumns(nodes []linkNode) (sites []SiteID, levels []int, buckets []int64) {
	for _, n := range nodes {
		sites, levels, buckets = append(sites, n.site), append(levels, n.level), append(buckets, n.bucket)
	}
	return sites, levels, buckets
}

// linkNodes runs a statement that returns a number and crowded nodes.
func linkNodes(ctx context.Context, tx bun.Tx, query string, args ...any) (n int, nodes []linkNode, err error) {
	rows, err := tx.Tx.QueryContext(ctx, query, args...)
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

// RecountLinks makes the counts of a Site's links anew, from the links, and returns how many those are. Writers and readers go on
// meanwhile: readers see the old counts until the new ones are there. ErrNotFound if there is no such Site.
func (s *Store) RecountLinks(ctx context.Context, site SiteID) (links int64, err error) {
	err = s.inTx(ctx, func(tx bun.Tx) error {
		_, err := tx.Tx.ExecContext(ctx, "SET LOCAL statement_timeout = 0")
		if err == nil {
			var there bool
			err = notFound(tx.Tx.QueryRowContext(ctx, "SELECT pg_advisory_xact_lock($1) IS NOT NULL FROM sites WHERE id = $2",
				linkCountsLock, site).Scan(&there), "site")
		}
		if err == nil {
			_, err = tx.Tx.ExecContext(ctx, "DELETE FROM link_counts WHERE site_id = $1", site)
		}
		if err != nil {
			return err
		}
		_, roots, err := linkNodes(ctx, tx, recountLinkRoots, site, s.crowded)
		if err == nil {
			err = s.divideLinkNodes(ctx, tx, roots)
		}
		if err == nil {
			err = tx.Tx.QueryRowContext(ctx, `SELECT coalesce(sum(invited + linked + expired + revoked), 0)
				FROM link_counts WHERE site_id = $1 AND level = 6`, site).Scan(&links)
		}
		return err
	})
	return links, wrap("recount links", err)
}

// recountLinkRoots counts a Site's links into roots, and returns the crowded ones, marked as divided.
const recountLinkRoots = `
WITH roots AS (
	INSERT INTO link_counts (site_id, level, bucket, divided, invited, linked, expired, revoked)
	SELECT $1, 6, invited_at >> 42, sum(change) > $2, ` + linkSums + ` FROM (
		SELECT invited_at, state, 1 AS change FROM customer_links WHERE site_id = $1
		UNION ALL
		SELECT invited_at, state, -change FROM link_changes WHERE site_id = $1
	) AS f GROUP BY 3
	RETURNING *
)
SELECT 0, site_id, level, bucket FROM roots WHERE divided`

// LinkedSites are the Sites that have links or counts of links.
func (s *Store) LinkedSites(ctx context.Context) (sites []SiteID, err error) {
	err = s.statement(ctx, func() error {
		rows, err := s.db.DB.QueryContext(ctx, `
			SELECT id FROM sites WHERE EXISTS (SELECT FROM customer_links WHERE site_id = sites.id)
				OR EXISTS (SELECT FROM link_counts WHERE site_id = sites.id) ORDER BY id`)
		if err == nil {
			sites, err = scanAll(rows, func(id *SiteID) []any { return []any{id} })
		}
		return err
	})
	return sites, wrap("linked Sites", err)
}
