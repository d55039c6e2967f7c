package main

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"partnerbilling/models"
)

// listSpan is the time over which the invitations of a Site are spread.
const listSpan = 2 * 365 * 24 * time.Hour

// seedLinks inserts $2 customer links of the Site $1. The newest one was invited at $3, in Unix
// milliseconds, and the oldest one about $4 ms earlier. Of 100 links, 60 are linked, 25 expired, 5
// revoked and 10 invited. About $5 of the newest invitations are past their expiry, and no sweep
// has recorded that. Ids grow with time, as those of the service do.
const seedLinks = `
INSERT INTO customer_links (site_id, id, customer_reference, state, invited_at, expires_at, linked_at, party,
	key_id)
SELECT $1, (lpad(to_hex(at), 12, '0') || '7000' || lpad(to_hex(i), 16, '8'))::uuid, 'customer ' || i, state, at,
	CASE WHEN state <> 'invited' THEN at + 604800000 WHEN $2 - i < $5 * 10 THEN $3 - 1 ELSE $3 + 604800000 END,
	CASE state WHEN 'linked' THEN at + 60000 END, 'sealed', gen_random_uuid()
FROM generate_series(1::bigint, $2) AS i CROSS JOIN LATERAL (
	SELECT $3 - ($2 - i) * $4 / $2 AS at, (CASE WHEN i * 7 % 100 < 60 THEN 'linked' WHEN i * 7 % 100 < 85 THEN 'expired'
		WHEN i * 7 % 100 < 90 THEN 'revoked' ELSE 'invited' END)::link_state AS state) AS l`

// newSite creates a Site of a new organisation.
func (b *bench) newSite(ctx context.Context) (models.SiteID, error) {
	organisation, err := b.store.CreateOrganisation(ctx, "organisation")
	if err != nil {
		return models.SiteID{}, err
	}
	site, err := b.store.CreateSite(ctx, organisation.ID, "Site")
	return site.ID, err
}

// seedList creates a Site with a number of links. For speed, it writes the links without triggers
// and indexes, and then recounts the totals. It adds the time of the recount to l.recount.
func (l *list) seedList(ctx context.Context, links int) (models.SiteID, error) {
	site, err := l.newSite(ctx)
	if err != nil {
		return site, err
	}
	now, err := l.store.Now(ctx)
	if err != nil {
		return site, err
	}
	overdue := min(100, links/100)
	err = l.store.DB().RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		return withoutIndexes(ctx, tx, "customer_links", func() error {
			_, err := tx.Tx.ExecContext(ctx, seedLinks, site, links, now, listSpan.Milliseconds(), overdue)
			return err
		})
	})
	if err != nil {
		return site, fmt.Errorf("seed %d links: %w", links, err)
	}
	if err := l.execWithoutTimeout(ctx, "VACUUM ANALYZE customer_links"); err != nil {
		return site, err
	}
	began := time.Now()
	counted, err := l.store.RecountLinks(ctx, site)
	if err == nil && counted != int64(links) {
		err = fmt.Errorf("counted %d links, want %d", counted, links)
	}
	if err != nil {
		return site, err
	}
	l.recount.add(time.Since(began).Seconds())
	if err := l.execWithoutTimeout(ctx, "VACUUM ANALYZE link_totals"); err != nil {
		return site, err
	}
	return site, l.checkpoint(ctx)
}
