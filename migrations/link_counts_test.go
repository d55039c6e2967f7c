package migrations_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// Links that were there before they were counted, or before they were counted as they are now, are in the totals at once; the first
// folds make their counts fine.
func TestLinkCountsOfLinksThatAreThere(t *testing.T) {
	t.Parallel()
	for name, last := range map[string][]string{
		"before they are counted":  {"0017_overdue_narrow", "0016_overdue_whole", "0014_link_totals", "0009_link_counts"},
		"before they are in parts": {"0014_link_totals"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			site := modelstest.Site(t, store)
			addLinks(t, store, site.ID, 1, 4000)
			fold(t, store, 1000)
			takeBack(t, store, last...)
			addLinks(t, store, site.ID, 4001, 5000)
			if n, err := migrations.Up(t.Context(), store.DB()); n != len(last) || err != nil {
				t.Fatalf("applied %d, %v", n, err)
			}
			proveTotals(t, store, site.ID)
			fold(t, store, 5000)
			var nodes int
			if err := store.DB().NewRaw("SELECT count(*) FROM link_totals WHERE level = 4").Scan(t.Context(), &nodes); err != nil {
				t.Fatal(err)
			}
			if nodes < 10 {
				t.Errorf("%d nodes after the first fold", nodes)
			}
			proveTotals(t, store, site.ID)
			modelstest.Audit(t, store)
		})
	}
}

// The release before finds its counts, with those links in them that it does not find among the changes; it cannot fold those.
func TestLinkCountsForTheReleaseBefore(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	takeBack(t, store, "0014_link_totals")
	addLinks(t, store, site.ID, 1, 5000)
	check := func() {
		t.Helper()
		var wrong []string
		if err := store.DB().NewRaw(countsOfTheReleaseBefore).Scan(t.Context(), &wrong); err != nil || len(wrong) > 0 {
			t.Errorf("%q, %v", wrong, err)
		}
	}
	check()
	for up := range 2 {
		if n, err := migrations.Up(t.Context(), store.DB()); n != 1 || err != nil {
			t.Fatalf("applied %d, %v", n, err)
		}
		for range 2 {
			check()
			fold(t, store, 3000)
		}
		check()
		if _, err := store.DB().ExecContext(t.Context(), "UPDATE link_counts SET invited = 0"); err == nil {
			t.Error("the release before changed counts")
		}
		if up == 0 {
			takeBack(t, store, "0014_link_totals")
			check()
		}
	}
}

// countsOfTheReleaseBefore are its roots that are not all links, and nodes that are not their parts.
const countsOfTheReleaseBefore = `
WITH counts AS (
	SELECT site_id, level, bucket, divided, s.state, s.n
	FROM link_counts CROSS JOIN LATERAL (VALUES ('invited', invited), ('linked', linked), ('expired', expired), ('revoked', revoked)) AS s (state, n))
SELECT format('%s: %s', state, sum(n)) FROM (
	SELECT state, n FROM counts WHERE level = 6
	UNION ALL SELECT state::text, change FROM link_changes
	UNION ALL SELECT state::text, -1 FROM customer_links) AS sides
GROUP BY state HAVING sum(n) <> 0
UNION ALL
SELECT format('%s %s %s: %s of %s', level, bucket, state, p.n, c.n) FROM counts AS c
LEFT JOIN (SELECT level + 1 AS level, bucket >> 7 AS bucket, state, sum(n) AS n FROM counts GROUP BY 1, 2, 3) AS p USING (level, bucket, state)
WHERE divided AND p.n IS DISTINCT FROM c.n
UNION ALL
SELECT format('%s %s: %s rows', level, bucket, count(*)) FROM link_counts GROUP BY level, bucket HAVING count(*) > 1`

// addLinks adds links of all states, a quarter of an hour apart.
func addLinks(t *testing.T, store *models.Store, site models.SiteID, first, last int) {
	t.Helper()
	if _, err := store.DB().ExecContext(t.Context(), `
		INSERT INTO customer_links (site_id, id, customer_reference, state, invited_at, expires_at, linked_at, customer_id, agreement_id, key_id)
		SELECT ?, gen_random_uuid(), i, (enum_range(NULL::link_state))[i % 4 + 1], svc_now() - i * 1000000::bigint, svc_now() + (i - 2000) * 60000, 1, 'c', 'a',
			gen_random_uuid() FROM generate_series(?::int, ?::int) AS i`, site, first, last); err != nil {
		t.Fatal(err)
	}
}

func fold(t *testing.T, store *models.Store, limit int) {
	t.Helper()
	if _, err := store.FoldLinkChanges(t.Context(), limit); err != nil {
		t.Fatal(err)
	}
}

// takeBack takes migrations back, the newest first, so that Up applies them again.
func takeBack(t *testing.T, store *models.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		down, err := os.ReadFile(name + ".tx.down.sql")
		if err != nil {
			t.Fatal(err)
		}
		number, _, _ := strings.Cut(name, "_")
		err = store.DB().RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, string(down))
			if err == nil {
				_, err = tx.ExecContext(ctx, "DELETE FROM bun_migrations WHERE name = ?", number)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func proveTotals(t *testing.T, store *models.Store, site models.SiteID) {
	t.Helper()
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from, to := now-3_000_000_000, now-1_234_567_890
	for _, state := range append([]models.LinkState{""}, models.LinkStates...) {
		for _, q := range []models.LinkQuery{{}, {InvitedFrom: &from}, {InvitedTo: &to}, {InvitedFrom: &from, InvitedTo: &to}} {
			q.SiteID, q.State, q.Limit = site, state, 1
			total, counted, err := store.ProveTotal(t.Context(), q)
			if err != nil || total != counted || counted == 0 {
				t.Errorf("%q: total %d of %d, %v", state, total, counted, err)
			}
		}
	}
}
