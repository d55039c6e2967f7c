package main

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// behindGateway makes the commands use a gateway over HTTP, with the sandbox rail behind it.
func (a admin) behindGateway(store *models.Store) *httptest.Server {
	a.Helper()
	key := rail.SigningKey{ID: "svc", Secret: []byte("a secret of the tests")}
	gateway, err := rail.NewServer(rail.ServerConfig{
		Rail: rail.NewSandbox(store), Keys: []rail.SigningKey{key}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		a.Fatal(err)
	}
	server := httptest.NewServer(gateway)
	a.Cleanup(server.Close)
	maps.Copy(a.env, map[string]string{
		"SVC_ENV": "sandbox", "SVC_RAIL": "http", "SVC_RAIL_URL": server.URL,
		"SVC_RAIL_KEY": "svc:a secret of the tests",
	})
	return server
}

// debitUnknown makes a debit that the ledger does not know.
func debitUnknown(t *testing.T, store *models.Store, key string) {
	t.Helper()
	must(t, store.OpenSandboxAccount(t.Context(), "planted", models.BehaviourPays))
	d := rail.Debit{Key: key, AgreementID: "planted", Amount: 725, Currency: "AUD"}
	if r := railtest.Debit(t.Context(), t, rail.NewSandbox(store), d)[0]; r.Status != rail.Succeeded {
		t.Fatalf("%+v", r)
	}
}

func TestAdminReconciles(t *testing.T) {
	for name, http := range map[string]bool{"sandbox": false, "http": true} {
		t.Run(name, func(t *testing.T) {
			a := newAdmin(t)
			store := a.store()
			if http {
				a.behindGateway(store)
			}
			site := modelstest.Site(t, store)
			denied := "r1_" + strings.Repeat("d", 64)
			_, err := store.DB().ExecContext(t.Context(), `
INSERT INTO ledger_entries (rail_key, site_id, recorded_at, amount, currency, batch_reference, row_reference,
    customer_reference)
VALUES (?, ?, svc_now(), 990, 'AUD', 'rent', 'flat 7', 'tenant')`, denied, site.ID)
			must(t, err)
			debitUnknown(t, store, "r1_unknown")
			modelstest.AdvanceClock(t, store, 5*time.Minute)

			code, out, stderr := svc(t, a.env, "admin", "reconcile")
			if code != 1 || !strings.Contains(stderr, "the reconciliation found differences") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			for _, want := range []string{
				"DIFFERENCE: railDebitUnknown: r1_unknown: 725 AUD on the rail; no row or payment has the key\n",
				"DIFFERENCE: ledgerEntryDenied: " + denied + `: row "flat 7" of batch "rent": 990 AUD in the ledger, `,
				": 1 debits, 1 ledger entries; 0 in flight, 2 differences\n",
				"railDebitUnknown: ask the rail's operator", "ledgerEntryDenied: the partner knows",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
			a.wantJSON()
			tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
			const nothing = "0 debits, 0 ledger entries; 0 in flight, 0 differences"
			if got := a.run("reconcile", "--from", tomorrow); !strings.Contains(got, nothing) {
				t.Errorf("of tomorrow: %s", got)
			}
			a.fails("reconcile", "--from", "yesterday")
			a.fails("reconcile", "--from", "2001-01-01") // before the rail's horizon
		})
	}
}

// wantJSON checks the output of --json.
func (a admin) wantJSON() {
	a.Helper()
	_, out, _ := svc(a.T, a.env, "admin", "reconcile", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 {
		a.Fatalf("output\n%s", out)
	}
	var difference struct {
		Kind, RailKey, Detail string
		DebitedAt             int64
	}
	var sums struct{ From, To, Debits, Entries, InFlight, Differences int64 }
	must(a.T, json.Unmarshal([]byte(lines[0]), &difference))
	must(a.T, json.Unmarshal([]byte(lines[2]), &sums))
	if difference.Kind != "railDebitUnknown" || difference.RailKey != "r1_unknown" || difference.DebitedAt == 0 {
		a.Errorf("%+v", difference)
	}
	if sums.Debits != 1 || sums.Entries != 1 || sums.Differences != 2 || sums.To <= sums.From {
		a.Errorf("%+v", sums)
	}
}

// Without an answer of the rail, the command fails. It never says that the books agree.
func TestAdminReconcilesWithoutARail(t *testing.T) {
	a := newAdmin(t)
	a.behindGateway(a.store()).Close()
	code, out, stderr := svc(t, a.env, "admin", "reconcile")
	if code != 1 || !strings.Contains(stderr, "the rail gives no answer") || strings.Contains(out, "DIFFERENCE") {
		t.Errorf("exit code %d:\n%s\n%s", code, out, stderr)
	}
}
