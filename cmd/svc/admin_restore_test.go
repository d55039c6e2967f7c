package main

import (
	"strings"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

// An operator prints a row's rail key, holds and cancels restored work, and decides debits whose
// result the rail does not know.
func TestAdminRestoresAndDecides(t *testing.T) {
	a := newAdmin(t)
	store, err := models.Open(postgres.Config{DSN: a.env["SVC_DATABASE_URL"]})
	must(t, err)
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	t.Cleanup(func() { must(t, store.Close()) })
	site := modelstest.Site(t, store)
	batch := modelstest.Submit(t, store, modelstest.Batch(site, "2026/11 #7", "ada")).Batch
	if key := a.run("debit", "key", site.ID.String(), "2026/11 #7", "row-0"); key != batch.RailKeys().Row("row-0") {
		t.Errorf("key %s", key)
	}
	a.fails("debit", "key", site.ID.String(), "2026/11 #7", "row-1")
	a.fails("debit", "key", "nowhere", "2026/11 #7", "row-0")
	a.fails("debit", "decide", site.ID.String(), "2026/11 #7", "row-0", "--debited")
	a.fails("debit", "decide", site.ID.String(), "2026/11 #7", "row-0")
	a.fails("debit", "decide-payment", models.NewPaymentIntentID().String(), "--debited")

	a.fails("restored", "--resume")
	a.fails("restored", "--resume", "--cancel")
	if out := a.run("restored"); !strings.Contains(out, "epoch 2, 1 open batches") || !strings.Contains(out, "held") {
		t.Errorf("restored: %s", out)
	}
	if out := a.run("restored", "--cancel"); strings.Contains(out, "held") {
		t.Errorf("cancelled: %s", out)
	}
	a.fails("restored", "--cancel")

	modelstest.AdvanceClock(t, store, models.SettleWithin) // the restored row is in doubt at its deadline
	if _, err := store.CloseOverdueBatch(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.fails("debit", "decide", site.ID.String(), "2026/11 #7", "row-0", "--debited=false") // decides nothing
	out := a.run("debit", "decide", site.ID.String(), "2026/11 #7", "row-0", "--debited")
	if !strings.Contains(out, "succeeded") {
		t.Errorf("decided: %s", out)
	}
	modelstest.Audit(t, store)

	intent := modelstest.Intent(t, store, site.ID, 500)
	modelstest.Pay(t, store, intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
	if out := a.run("debit", "decide-payment", intent.ID.String(), "--not-debited"); !strings.Contains(out, "Failed") {
		t.Errorf("decided: %s", out)
	}
	modelstest.Audit(t, store)
}
