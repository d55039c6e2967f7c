package models_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// anyTotal generates a query for a total by state and time range.
func anyTotal(r *rapid.T, site models.SiteID, span int64) models.LinkQuery {
	q := models.LinkQuery{SiteID: site, Limit: 1, Direction: models.Forward,
		State: rapid.SampledFrom(append([]models.LinkState{""}, models.LinkStates...)).Draw(r, "state")}
	bound := func(label string) *models.Millis {
		at := noon + models.Millis(rapid.Int64Range(-2, span+2).Draw(r, label))
		return rapid.SampledFrom([]*models.Millis{nil, &at}).Draw(r, label+" if any")
	}
	q.InvitedFrom, q.InvitedTo = bound("from"), bound("to")
	return q
}

func checkTotal(ctx context.Context, t failer, store *models.Store, q models.LinkQuery) {
	t.Helper()
	total, counted, err := store.CompareTotals(ctx, q)
	must(t, err)
	if total != counted {
		t.Errorf("state %q from %v to %v: total %d, want %d", q.State, q.InvitedFrom, q.InvitedTo, total, counted)
	}
}

// After random operations, folds and recounts in any order, every total equals the number of links.
func TestTotalsUnderRandomHistories(t *testing.T) {
	c := newCustomers(t)
	rapid.Check(t, func(r *rapid.T) {
		modelstest.SetClock(t, c.store, noon)
		c.store.SplitPartsAboveForTest(rapid.IntRange(1, 4).Draw(r, "split above"))
		c.site = c.newSite(t)
		w := &linkWorld{customers: c, t: t, now: noon}
		made := 0
		r.Repeat(map[string]func(*rapid.T){
			"create": func(r *rapid.T) {
				made++
				link, _, err := c.store.CreateInvitation(t.Context(), models.NewInvitation{SiteID: c.site,
					CustomerReference: fmt.Sprint(made), ExpiresAt: w.now.Add(5 * time.Minute), KeyID: c.key}, nil)
				must(r, err)
				w.links = append(w.links, &linkLife{CustomerLink: link, reference: link.CustomerReference})
			},
			"complete": w.completeAny,
			"revoke":   w.revokeLinkAny,
			"advance": func(r *rapid.T) {
				by := rapid.SampledFrom([]time.Duration{1, 2, 127, 128, 1000, 5 * 60_000, 3 * 3600_000}).Draw(r,
					"ms") * time.Millisecond
				w.advanceBy(by)
			},
			"sweep": w.sweep,
			"fold": func(r *rapid.T) {
				_, err := c.store.FoldLinkChanges(t.Context(), rapid.IntRange(1, 5).Draw(r, "limit"))
				must(r, err)
			},
			"recount": func(r *rapid.T) {
				links, err := c.store.RecountLinks(t.Context(), c.site)
				must(r, err)
				if links > int64(made) {
					r.Fatalf("counted %d of %d links", links, made)
				}
			},
			"": func(r *rapid.T) {
				checkTotal(t.Context(), r, c.store, anyTotal(r, c.site, int64(w.now-noon)))
			},
		})
		modelstest.Audit(t, c.store)
	})
}

// Every total is exact while 16 writers invite, sign up and revoke, the clock passes expiries, and
// folds, sweeps and recounts run.
func TestTotalsWhileWritersWrite(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	c.store.SplitPartsAboveForTest(8)
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() { c.write(t, w) })
	}
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }()
	var others sync.WaitGroup
	repeat := func(do func() error) {
		others.Go(func() {
			for {
				if err := do(); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-written:
					return
				default:
				}
			}
		})
	}
	ctx := t.Context()
	repeat(func() error { _, err := c.store.FoldLinkChanges(ctx, 20); return err })
	repeat(func() error { _, err := c.store.FoldLinkChanges(ctx, 50); return err })
	repeat(func() error { _, err := c.store.RecountLinks(ctx, c.site); return err })
	repeat(func() error { _, err := c.store.ExpireInvitations(ctx, 5); return err })
	repeat(func() error {
		from := noon + models.Millis(rand.Int64N(200))
		to := from + models.Millis(rand.Int64N(200))
		for _, state := range append([]models.LinkState{""}, models.LinkStates...) {
			checkTotal(ctx, t, c.store, models.LinkQuery{SiteID: c.site, Limit: 1, Direction: models.Forward,
				State: state})
			checkTotal(ctx, t, c.store, models.LinkQuery{SiteID: c.site, Limit: 1, Direction: models.Forward,
				State:       state,
				InvitedFrom: &from, InvitedTo: &to})
		}
		return nil
	})
	others.Wait()
	modelstest.Audit(t, c.store)
	c.advance(t, week)
	checkTotal(ctx, t, c.store, models.LinkQuery{SiteID: c.site, Limit: 1, Direction: models.Forward,
		State: models.LinkExpired})
}

// Every statement that changes links updates the counts.
func TestCountsSeeEveryStatement(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	for i := range 6 {
		c.invite(t, fmt.Sprint(i))
	}
	elsewhere := c.newSite(t)
	for _, statement := range []string{
		"UPDATE customer_links SET state = 'expired' WHERE customer_reference < '2'",
		"UPDATE customer_links SET invited_at = invited_at + 1000 WHERE customer_reference < '3'",
		fmt.Sprintf("UPDATE customer_links SET site_id = '%s' WHERE customer_reference = '4'", uuid.UUID(elsewhere)),
		"DELETE FROM customer_links WHERE customer_reference IN ('1', '5')",
	} {
		_, err := c.store.DB().ExecContext(t.Context(), statement)
		must(t, err)
		_, err = c.store.FoldLinkChanges(t.Context(), 3)
		must(t, err)
		for _, site := range []models.SiteID{c.site, elsewhere} {
			checkTotal(t.Context(), t, c.store, models.LinkQuery{SiteID: site, Limit: 1})
			checkTotal(t.Context(), t, c.store, models.LinkQuery{SiteID: site, Limit: 1, State: models.LinkExpired})
		}
		modelstest.Audit(t, c.store)
	}
}

// An audit reports wrong counts on every level, and a recount repairs them.
func TestAuditOfCounts(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	c.store.SplitPartsAboveForTest(2)
	for i := range 5 {
		c.invite(t, fmt.Sprint(i))
		c.advance(t, time.Millisecond)
	}
	_, err := c.store.FoldLinkChanges(t.Context(), 100)
	must(t, err)
	c.invite(t, "not folded")
	modelstest.Audit(t, c.store)
	for i, wrong := range []string{
		"UPDATE link_totals SET totals[128] = totals[128] + 1 WHERE level = 6",
		"UPDATE link_totals SET totals[128] = totals[128] - 1 WHERE level = 4",
		"UPDATE link_totals SET totals = add_links(totals, '{1,2}', '{1,-1}') WHERE level = 1",
		"UPDATE link_totals SET state = 'linked' WHERE level = 2",
		"DELETE FROM link_totals",
		"DELETE FROM link_changes",
		"UPDATE link_changes SET change = 2",
	} {
		_, err := c.store.DB().ExecContext(t.Context(), wrong)
		must(t, err)
		found, err := c.store.Audit(t.Context(), false)
		must(t, err)
		if len(found) == 0 {
			t.Errorf("the audit saw nothing of %s", wrong)
		}
		links, err := c.store.RecountLinks(t.Context(), c.site)
		must(t, err)
		if want := int64(6 + i); links+c.unfolded(t) != want {
			t.Errorf("after %s: counted %d links, want %d", wrong, links, want)
		}
		modelstest.Audit(t, c.store)
		c.invite(t, wrong)
	}
}

// unfolded is the number of links in the changes that are not folded yet.
func (c *customers) unfolded(t testing.TB) (n int64) {
	t.Helper()
	must(t, c.store.DB().QueryRowContext(t.Context(), "SELECT coalesce(sum(change), 0) FROM link_changes").Scan(&n))
	return n
}

// A second concurrent fold returns at once.
func TestFoldingDoesNotWait(t *testing.T) {
	c := newCustomers(t)
	c.freeze(t)
	c.invite(t, "r")
	tx, err := c.store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock(?)", models.LinkCountsLockForTest)
	must(t, err)
	n, err := c.store.FoldLinkChanges(t.Context(), 10)
	must(t, err)
	if n != 0 {
		t.Errorf("folded %d, want 0", n)
	}
	must(t, tx.Rollback())
	if n, err = c.store.FoldLinkChanges(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("folded %d, %v; want 1", n, err)
	}
}
