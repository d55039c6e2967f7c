package migrations_test

import (
	"os"
	"testing"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// Links that were there before they were counted are in the totals at once; the first folds make their counts fine.
func TestLinkCountsOfLinksThatAreThere(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := store.DB().ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	down, err := os.ReadFile("0009_link_counts.tx.down.sql")
	if err != nil {
		t.Fatal(err)
	}
	exec(string(down))
	exec("DELETE FROM bun_migrations WHERE name = '0009'")
	exec(`INSERT INTO customer_links (site_id, id, customer_reference, state, invited_at, expires_at, linked_at, customer_id, agreement_id, key_id)
		SELECT ?, gen_random_uuid(), i, (enum_range(NULL::link_state))[i % 4 + 1], svc_now() - i * 1000000::bigint, svc_now() + (i - 2000) * 60000, 1, 'c', 'a',
			gen_random_uuid() FROM generate_series(1, 5000) AS i`, site.ID)
	if n, err := migrations.Up(t.Context(), store.DB()); n != 1 || err != nil {
		t.Fatalf("applied %d, %v", n, err)
	}
	proveTotals(t, store, site.ID)
	if n, err := store.FoldLinkChanges(t.Context(), 100); n == 0 || err != nil {
		t.Fatalf("folded %d, %v", n, err)
	}
	var leaves int
	if err := store.DB().NewRaw("SELECT count(*) FROM link_counts WHERE NOT divided").Scan(t.Context(), &leaves); err != nil {
		t.Fatal(err)
	}
	if leaves < 10 {
		t.Errorf("%d leaves after the first fold", leaves)
	}
	proveTotals(t, store, site.ID)
	modelstest.Audit(t, store)
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
