package jobs

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"partnerbilling/deploy/local"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// planted are a customer and an agreement that occur nowhere else.
var planted = models.Party{CustomerID: "planted-customer-7391", AgreementID: "planted-agreement-2846"}

// plant signs the planted customer up, and lets the customer be debited and pay.
func (h *history) plant() {
	h.Helper()
	link := modelstest.Invite(h, h.store, h.site.ID, "grace")
	for range 2 { // a repetition
		if _, err := h.store.CompleteLink(h.Context(), link.ID, planted); err != nil {
			h.Fatal(err)
		}
	}
	modelstest.Submit(h, h.store, modelstest.Batch(h.site, "of grace", "grace"))
	h.intent("of grace", &planted, false)
}

// export returns what is stored about the planted customer.
func (h *history) export() models.CustomerData {
	h.Helper()
	data, err := h.store.ExportCustomer(h.Context(), h.site.ID, "grace")
	if err != nil {
		h.Fatal(err)
	}
	return data
}

// No dump of the database shows a customer or an agreement, as text, in hexadecimal or in base64,
// though debits and payments use them.
func TestDumpShowsNoCustomer(t *testing.T) {
	dsn := modelstest.DSN(t)
	h := &history{deliveries: newDeliveries(t, "")}
	h.store = modelstest.Connect(t, dsn)
	modelstest.SetClock(t, h.store, noon)
	h.site = modelstest.Site(t, h.store)
	scripted := railtest.NewScripted() // not the sandbox, which keeps its accounts in the database
	h.jobs = New(Config{Store: h.store, Rail: scripted, Keyring: h.ring, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { h.jobs[models.TaskDeliverWebhook].(*DeliverWebhook).Sender.Close() })
	h.plant()
	h.work()
	data := h.export()
	if len(data.Rows) != 1 || data.Rows[0].Outcome != models.OutcomeSucceeded ||
		data.Links[0].PartyData != models.PartyData(planted) || len(data.Payments) != 1 ||
		data.Payments[0].TransactionStatus != models.TransactionSettled || len(data.Movements) != 1 {
		t.Fatalf("exported %+v", data)
	}
	programs, err := local.PostgresPrograms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dump, err := exec.CommandContext(t.Context(), filepath.Join(programs, "pg_dump"), dsn).Output()
	if err != nil || !strings.Contains(string(dump), "of grace") {
		t.Fatalf("pg_dump: %v, %d bytes", err, len(dump))
	}
	for _, secret := range []string{planted.CustomerID, planted.AgreementID} {
		for _, text := range []string{
			secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))[:16],
		} {
			if strings.Contains(string(dump), text) {
				t.Errorf("the dump shows %q", text)
			}
		}
	}
}

// An erasure is refused while a debit is open. Afterwards it revokes the link, and leaves books and
// references.
func TestEraseCustomer(t *testing.T) {
	h := newHistory(t)
	if err := h.store.OpenSandboxAccount(t.Context(), planted.AgreementID, models.BehaviourPays); err != nil {
		t.Fatal(err)
	}
	h.plant()
	other := modelstest.Payer(t, h.store, models.BehaviourPays)
	h.intent("of another", &other, false)
	before := h.export()
	if _, _, err := h.store.EraseCustomer(t.Context(), h.site.ID, "grace"); !errors.Is(err, models.ErrCustomerInUse) {
		t.Errorf("while a debit is open: %v", err)
	}
	if after := h.export(); after.Links[0].State != models.LinkLinked || len(after.Payments) != len(before.Payments) {
		t.Errorf("the refused erasure changed %+v", after)
	}
	h.work()
	movements := h.movements()
	links, payments, err := h.store.EraseCustomer(t.Context(), h.site.ID, "grace")
	if links != 1 || payments != 1 || err != nil {
		t.Errorf("erased from %d links and %d payments, %v", links, payments, err)
	}
	data := h.export()
	if data.Links[0].State != models.LinkRevoked || data.Links[0].PartyData != (models.PartyData{}) ||
		len(data.Rows) != 1 || len(data.Movements) != 1 || len(data.Payments) != 0 {
		t.Errorf("after the erasure: %+v", data)
	}
	if got := h.movements(); len(got) != len(movements) || len(got) != 3 {
		t.Errorf("movements %+v", got)
	}
	links, payments, err = h.store.EraseCustomer(t.Context(), h.site.ID, "grace")
	if links+payments != 0 || err != nil {
		t.Errorf("again: %d, %d, %v", links, payments, err)
	}
	if _, _, err := h.store.EraseCustomer(t.Context(), h.site.ID, "nobody"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("an unknown customer: %v", err)
	}
	modelstest.AuditRail(t, h.store)
}

// Parties move to a new master key, and a second call finds nothing left. A party does not open in
// another row, nor without its key.
func TestResealParties(t *testing.T) {
	h := newHistory(t)
	h.plant()
	old := modelstest.Keyring(t, modelstest.MasterKey)
	fresh := seal.GenerateMasterKey()
	both := modelstest.Keyring(t, fresh+","+modelstest.MasterKey)
	h.store.SetKeyring(both)
	for i, want := range []int{2, 0} { // a link and a payment
		if n, err := h.store.ResealParties(t.Context(), both); n != want || err != nil {
			t.Errorf("call %d resealed %d, %v", i, n, err)
		}
	}
	h.store.SetKeyring(modelstest.Keyring(t, fresh))
	if data := h.export(); data.Links[0].PartyData != models.PartyData(planted) || len(data.Payments) != 1 {
		t.Errorf("under the new key: %+v", data)
	}
	h.store.SetKeyring(old)
	if _, err := h.store.ExportCustomer(t.Context(), h.site.ID, "grace"); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("without its key: %v", err)
	}
	h.store.SetKeyring(both)
	modelstest.Customer(t, h.store, h.site.ID, "hugo", models.BehaviourPays)
	swap := `UPDATE customer_links l SET party = o.party FROM customer_links o
		WHERE l.customer_reference = 'hugo' AND o.customer_reference = 'grace'`
	if _, err := h.store.DB().ExecContext(t.Context(), swap); err != nil {
		t.Fatal(err)
	}
	if _, err := h.store.ExportCustomer(t.Context(), h.site.ID, "hugo"); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("a party of another row: %v", err)
	}
}
