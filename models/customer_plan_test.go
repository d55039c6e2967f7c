package models_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
	"partnerbilling/models/postgres/explain"
)

// fillSite inserts n links, one second apart, with statistics as autovacuum makes them. One in a
// hundred is invited, and 20 of those are overdue.
func (c *customers) fillSite(t testing.TB, n int) {
	t.Helper()
	tx, err := c.store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	// the counts are made at the end
	_, err = tx.ExecContext(t.Context(), "SET LOCAL session_replication_role = replica")
	must(t, err)
	_, err = tx.ExecContext(t.Context(), `
		INSERT INTO customer_links (site_id, id, customer_reference, state, invited_at, expires_at, linked_at,
			party, key_id)
		SELECT ?0, gen_random_uuid(), 'customer ' || i, CASE WHEN i % 100 = 0 THEN 'invited' WHEN i % 3 = 0
			THEN 'expired'
			WHEN i % 100 = 1 THEN 'revoked' ELSE 'linked' END::link_state, ?1 - i * 1000::bigint,
			CASE WHEN i % 100 = 0 AND i > 2000 THEN ?1 + 600000 ELSE ?1 END, 1, 'sealed', gen_random_uuid()
		FROM generate_series(1, ?2) AS i`, c.site, noon, n)
	must(t, err)
	must(t, tx.Commit())
	modelstest.Vacuum(t, c.store, "customer_links")
	_, err = c.store.RecountLinks(t.Context(), c.site)
	must(t, err)
	modelstest.Vacuum(t, c.store, "link_totals")
}

// sequential returns the tables that a plan scans sequentially, but for those of one row.
func sequential(plan explain.Plan) []string {
	return slices.DeleteFunc(plan.Sequential(), func(table string) bool { return table == "service_clock" })
}

// listQueries are pages from the beginning, the middle and the end, for every combination of
// filters.
func listQueries(site models.SiteID, oldest models.Millis) []models.LinkQuery {
	var all []models.LinkQuery
	span := noon - oldest
	from, to, middle := oldest+span/5, oldest+span*4/5, oldest+span/2
	for _, state := range append([]models.LinkState{""}, models.LinkStates...) {
		for _, q := range []models.LinkQuery{{}, {InvitedFrom: &from}, {InvitedTo: &to},
			{InvitedFrom: &from, InvitedTo: &to}} {
			q.SiteID, q.State, q.Limit, q.Direction = site, state, 50, models.Forward
			inside, last := q, q
			inside.At.At = middle
			last.Direction = models.Backward
			all = append(all, q, inside, last)
		}
	}
	return all
}

// With 100,000 links in a Site, every page uses indexes and reads a few hundred of some six
// thousand blocks. That holds for the plan with actual values and for the generic plan.
func TestListLinksReadsLittle(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	const links, most = 100_000, 400
	c.fillSite(t, links)
	conn, err := c.store.DB().DB.Conn(t.Context())
	must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(t.Context(), "SET plan_cache_mode = force_generic_plan")
	must(t, err)
	check := func(q models.LinkQuery, how string, plan explain.Plan, err error) {
		must(t, err)
		if tables := sequential(plan); len(tables) > 0 || plan.Blocks() > most {
			t.Errorf("%+v, %s: reads %d blocks, all of %q", q, how, plan.Blocks(), tables)
		}
	}
	for i, q := range listQueries(c.site, noon-links*1000) {
		list, args := q.Statement()
		plan, err := explain.Run(t.Context(), c.store.DB().DB, list, args)
		check(q, "planned for its values", plan, err)
		values, err := list.Bind(args)
		must(t, err)
		literals := make([]string, len(values))
		for i, value := range values {
			literals[i] = literal(value)
		}
		_, err = conn.ExecContext(t.Context(), fmt.Sprintf("PREPARE page%d AS %s", i, list.Text()))
		must(t, err)
		execute := fmt.Sprintf("EXECUTE page%d (%s)", i, strings.Join(literals, ", "))
		plan, err = explain.RunText(t.Context(), conn, execute)
		check(q, "planned for all values", plan, err)
		checkTotal(t.Context(), t, c.store, q)
	}
}

func literal(arg any) string {
	switch v := arg.(type) {
	case models.SiteID:
		return "'" + uuid.UUID(v).String() + "'"
	case models.LinkID:
		return "'" + uuid.UUID(v).String() + "'"
	}
	return fmt.Sprint(arg)
}

// No request about customers reads all links, with either kind of plan.
func TestNoRequestReadsAllLinks(t *testing.T) {
	// whose statistics are read below
	store, err := models.Open(postgres.Config{DSN: modelstest.DSN(t), MaxConns: 1})
	must(t, err)
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { _ = store.Close() })
	c := newCustomersOn(t, store)
	c.freeze(t)
	c.fillSite(t, 30_000)
	scans := func() (n int) {
		t.Helper()
		_, err := store.DB().ExecContext(t.Context(), "SELECT pg_stat_force_next_flush()")
		must(t, err)
		must(t, store.DB().QueryRowContext(t.Context(), `SELECT sum(seq_scan) FROM pg_stat_user_tables
			WHERE relname IN ('customer_links', 'link_totals')`).Scan(&n))
		return n
	}
	before := scans()
	for i := range 8 { // more often than Postgres plans anew
		reference := fmt.Sprint("new ", i)
		link := c.invite(t, reference)
		_, err := store.LiveInvitation(t.Context(), c.site, reference)
		must(t, err)
		_, err = store.Signup(t.Context(), c.keys, c.token(t, link))
		must(t, err)
		_, err = c.complete(t, link, alice)
		must(t, err)
		_, err = store.RevokeCustomer(t.Context(), c.site, reference)
		must(t, err)
		_, err = store.RevokeLink(t.Context(), link.ID)
		must(t, err)
		_, err = store.ExpireInvitations(t.Context(), 5)
		must(t, err)
		for q := range slices.Values(listQueries(c.site, noon-30_000_000)) {
			_, err = store.ListLinks(t.Context(), q)
			must(t, err)
		}
	}
	if after := scans(); after != before {
		t.Errorf("%d scans of all links or counts", after-before)
	}
	_, err = store.DB().ExecContext(t.Context(), "SELECT count(*) FROM customer_links WHERE trace_id = 'x'")
	must(t, err)
	if scans() == before {
		t.Error("a scan of all links is not seen")
	}
}
