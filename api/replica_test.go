package api_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strings"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// The replica serves tables, with what a JSON answer before had. JSON stays on the primary.
func TestReplicaServesTables(t *testing.T) {
	t.Parallel()
	r := modelstest.OpenReplicated(t)
	b := newBatchingOn(t, r.Store)
	rows := func() string { return string(b.Get(b.batch("b", "/rows")).Expect(200).Body) }
	movements := func() [][]string {
		body := b.table().Get(b.movements("")).Expect(200).Body
		table, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
		check(t, err)
		return table[1:]
	}
	chunk := b.submit(t, "b", "ada", "bob")
	r.OnReplica("rows of a batch just submitted", func() { rows() })
	b.finish(t, chunk, outcomes(models.OutcomeSucceeded, models.OutcomeTimedOut)...)
	served := r.Served()
	if got := dataOf[batchData](b.Get(b.batch("b", "")).Expect(200)); got.State != "settled" {
		t.Fatalf("the batch is %s", got.State)
	}
	b.Get(b.movements("")).Expect(200)
	b.Get(b.batches("")).Expect(200)
	if r.Served() != served {
		t.Error("the replica has served JSON")
	}
	r.OnReplica("rows of a batch just settled", func() {
		if table := rows(); strings.Count(table, ",settled,") != 2 {
			t.Errorf("the table is older than the JSON:\n%s", table)
		}
	})
	r.OnReplica("movements just recorded", func() {
		if table := movements(); len(table) != 1 {
			t.Errorf("movements: %v", table)
		}
	})
	b.Get(b.batch("none", "/rows")).Expect(404)

	check(t, r.Pair.PauseReplay(t.Context()))
	chunk = b.submit(t, "c", "ada")
	b.finish(t, chunk, outcomes(models.OutcomeSucceeded)...)
	if table := movements(); len(table) != 2 {
		t.Errorf("movements behind a paused replay: %v", table)
	}
	b.Get(b.batch("c", "/rows")).Expect(200)
}

// A long table, read in many parts, comes from the primary as a whole once the replica is killed.
func TestReplicaIsKilledBeforeALongTable(t *testing.T) {
	t.Parallel()
	r := modelstest.OpenReplicated(t)
	b := newBatchingOn(t, r.Store)
	const batches = 3
	for i := range batches {
		chunk := b.submit(t, fmt.Sprint(i), customersFor(models.ChunkRows)...)
		results := make([]models.RowResult, len(chunk.Rows))
		for n := range results {
			results[n] = models.RowResult{Index: n, Outcome: models.OutcomeSucceeded}
		}
		b.finish(t, chunk, results...)
	}
	r.OnReplica("a long table", func() { b.table().Get(b.movements("")).Expect(200) })
	r.Pair.Standby().Postgres.KillAll()
	body := b.table().Get(b.movements("")).Expect(200).Body
	if n := strings.Count(string(body), "\n"); n != 1+batches*models.ChunkRows {
		t.Errorf("the table has %d lines", n)
	}
}

// The replica serves the console's pages, each right after the act that it shows.
func TestReplicaServesTheConsole(t *testing.T) {
	t.Parallel()
	r := modelstest.OpenReplicated(t)
	c := newConsolesOn(t, r.Store, nil)
	v := c.signedIn(t)
	intent := modelstest.Intent(t, c.store, c.site, 700)
	_, _, err := c.store.CancelPaymentIntent(t.Context(), c.site, intent.ID)
	check(t, err)
	modelstest.Invite(t, c.store, c.site, "ada")
	modelstest.Submit(t, c.store, modelstest.Batch(models.Site{ID: c.site, OrganisationID: c.owner}, "b", "ada"))
	page, err := c.store.ListWebhookEvents(t.Context(), models.WebhookQuery{OrganisationID: c.owner, Limit: 1})
	check(t, err)
	for _, path := range []string{
		"/console/webhooks", "/console/webhooks/event?id=" + page.Items[0].ID.String(), c.page(""),
		c.page("/payments"), c.page("/payment?id=" + intent.ID.String()), c.page("/batches"),
		c.page("/batches/new?fill=linked"), c.page("/batch?ref=b"), c.page("/batch.csv?ref=b"), c.page("/customers"),
		c.page("/customer?ref=ada"), "/console/clock",
	} {
		r.OnReplica(path, func() { v.open(path).expect(200) })
	}
	v.open(c.page("/customers"))
	v.submit(c.page("/customers"), "customerReference", "grace")
	r.OnReplica("customers after an invitation", func() { v.open(c.page("/customers")).expect(200, "grace") })
	next := v.submit(c.page("/batches"), "batchReference", "november", "rows", "grace,row-1,1250", "action", "submit").
		expect(303).to()
	r.OnReplica("a batch after its submission", func() { v.open(next).expect(200, "november") })
	v.submit(c.page("/batch"), "ref", "november", "action", "cancel").expect(303)
	r.OnReplica("a batch after its cancellation", func() { v.open(next).expect(200, "cancelled") })
}
