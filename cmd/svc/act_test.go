package main

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// readOnlyCommands are the commands of svc admin and svc migrate that change no state of the
// service.
var readOnlyCommands = []string{
	"svc admin alerts", "svc admin audit", "svc admin backlog", "svc admin client list", "svc admin client secret list",
	"svc admin client show", "svc admin customer export", "svc admin debit key", "svc admin find",
	"svc admin keys list", "svc admin log", "svc admin master-key", "svc admin operator hash",
	"svc admin organisation list", "svc admin pauses", "svc admin rail show", "svc admin reconcile",
	"svc admin story batch", "svc admin story payment", "svc admin webhook dead-letters", "svc admin webhook parked",
	"svc migrate grants", "svc migrate status",
}

// commandsByAct returns the command of each act, and the commands without an act.
func commandsByAct() (acting map[models.ActName]string, others []string) {
	acting = map[models.ActName]string{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		switch act := cmd.Annotations[actAnnotation]; {
		case act != "":
			acting[models.ActName(act)] = cmd.CommandPath()
		case cmd.Runnable():
			others = append(others, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	p := &program{stdout: io.Discard, stderr: io.Discard}
	for _, cmd := range p.command().Commands() {
		if cmd.Name() == "admin" || cmd.Name() == "migrate" {
			walk(cmd)
		}
	}
	slices.Sort(others)
	return acting, others
}

// Every command that changes state has an act of its own, and every act of operators has a command.
func TestEveryChangingCommandIsAnAct(t *testing.T) {
	t.Parallel()
	acting, others := commandsByAct()
	if diff := cmp.Diff(readOnlyCommands, others); diff != "" {
		t.Errorf("commands without an act (-read-only +found):\n%s", diff)
	}
	got := slices.Sorted(maps.Keys(acting))
	want := slices.Sorted(slices.Values(models.OperatorActs))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("acts (-models +commands):\n%s", diff)
	}
}

// actCase prepares one act.
type actCase struct {
	args    func() []string // prepares a subject of its own and returns the command
	subject models.SubjectKind
	env     []string
}

// Every changing command leaves an entry in the audit log, and changes nothing if the entry cannot
// be written.
func TestEveryChangingCommandIsRecorded(t *testing.T) {
	a := newAdmin(t)
	store := a.store()
	if _, err := store.JoinDeployment(t.Context(), models.Deployment{Environment: models.EnvSandbox}); err != nil {
		t.Fatal(err)
	}
	a.env["SVC_OPERATOR"] = "jane"
	acting, _ := commandsByAct()
	cases := a.actCases(store)
	// The rail can be replaced only before a restore.
	for _, act := range slices.Concat([]models.ActName{models.ActReplaceRail}, models.OperatorActs) {
		path, pending := acting[act]
		c, ok := cases[act]
		switch {
		case !ok:
			t.Errorf("%s has no case", path)
		case pending:
			a.checkAct(store, act, path, c)
			delete(acting, act)
		}
	}
}

func (a admin) checkAct(store *models.Store, act models.ActName, path string, c actCase) {
	a.Helper()
	variables := with(a.env, c.env...)
	args := c.args()
	if !strings.HasPrefix("svc "+strings.Join(args, " "), path) {
		a.Fatalf("the case of %s runs %v", path, args)
	}
	before, accept := modelstest.State(a, store), modelstest.RefuseAuditEntries(a, store)
	if code, _, _ := svc(a.T, variables, args...); code != 1 {
		a.Errorf("%v without an entry: exit code %d", args, code)
	}
	if diff := cmp.Diff(before, modelstest.State(a, store)); diff != "" {
		a.Errorf("%v without an entry changed tables:\n%s", args, diff)
	}
	accept()
	args = c.args()
	entries := len(a.entries(store))
	if code, _, stderr := svc(a.T, variables, args...); code != 0 {
		a.Fatalf("%v: %s", args, stderr)
	}
	got := a.entries(store)
	if len(got) != entries+1 {
		a.Fatalf("%v left %d entries", args, len(got)-entries)
	}
	e := got[0]
	if e.Act != act || e.Outcome != models.ActDone || e.Actor != "jane" || e.ActorKind != models.ActorOperator ||
		e.SubjectKind != c.subject || !strings.Contains(e.Origin, "@") || len(e.TraceID) != 32 {
		a.Errorf("%v: %+v", args, e)
	}
}

func (a admin) entries(store *models.Store) []models.AuditEntry {
	a.Helper()
	entries, err := store.AuditLog(a.Context(), models.AuditFilter{}, models.AuditPosition{}, 1000)
	if err != nil {
		a.Fatal(err)
	}
	return entries
}

func (a admin) actCases(store *models.Store) map[models.ActName]actCase {
	site := modelstest.Site(a, store)
	organisation := site.OrganisationID.String()
	ofClient := func(before func(id models.ClientID), command ...string) actCase {
		return actCase{subject: models.SubjectClient, args: func() []string {
			client, _, err := store.CreateClientWithSecret(a.Context(), site.OrganisationID, "client",
				models.PartnerScopes)
			if err != nil {
				a.Fatal(err)
			}
			if before != nil {
				before(client.ID)
			}
			args := slices.Clone(command)
			args[slices.Index(args, "CLIENT")] = client.ID.String()
			return append([]string{"admin", "client"}, args...)
		}}
	}
	plain := func(subject models.SubjectKind, args ...string) actCase {
		return actCase{subject: subject, args: func() []string { return args }}
	}
	cases := map[models.ActName]actCase{
		models.ActAddOrganisation: plain(models.SubjectOrganisation, "admin", "organisation", "add", "Harbour"),
		models.ActColourOrganisation: plain(models.SubjectOrganisation, "admin", "organisation", "colour",
			organisation, "#1F5FAE"),
		models.ActAddSite:            plain(models.SubjectSite, "admin", "site", "add", organisation, "Quay Street"),
		models.ActAddClient:          plain(models.SubjectClient, "admin", "client", "add", organisation),
		models.ActSetClientScopes:    ofClient(nil, "scopes", "CLIENT", "billing:customers:read"),
		models.ActSetClientAddresses: ofClient(nil, "allow-addresses", "CLIENT", "192.0.2.0/24", "2001:db8::1"),
		models.ActDisableClient:      ofClient(nil, "disable", "CLIENT"),
		models.ActEnableClient:       ofClient(a.disable(store), "enable", "CLIENT"),
		models.ActAddClientSecret:    ofClient(nil, "secret", "add", "CLIENT"),
		models.ActRemoveClientSecret: {subject: models.SubjectClient, args: a.removeSecret(store, site)},
		models.ActSetClientKeys:      ofClient(nil, "keys", "set", "CLIENT", a.keySet()),
		models.ActRemoveClientKeys:   ofClient(nil, "keys", "remove", "CLIENT"),
		models.ActRotateKey:          plain(models.SubjectKey, "admin", "keys", "rotate", "accessToken"),
		models.ActRetireKey: {subject: models.SubjectKey, args: func() []string {
			key, _, _ := strings.Cut(a.run("keys", "rotate", "signupLink"), ",")
			if key == "" {
				a.Fatal("no key")
			}
			return []string{"admin", "keys", "retire", key}
		}},
		models.ActReseal:           plain(models.SubjectMasterKey, "admin", "keys", "reseal"),
		models.ActDecideRestored:   plain(models.SubjectDatabase, "admin", "restored"),
		models.ActRecountCustomers: plain(models.SubjectSite, "admin", "recount", site.ID.String()),
		models.ActMigrate:          plain("", "migrate", "up"),
		models.ActEraseCustomer: {subject: models.SubjectCustomerLink, args: func() []string {
			reference := string(models.NewTraceID())
			modelstest.Invite(a, store, site.ID, reference)
			return []string{"admin", "customer", "erase", site.ID.String(), reference}
		}},
		models.ActReplaceRail: {subject: models.SubjectRail, env: []string{"SVC_ENV", "sandbox", "SVC_RAIL", "http",
			"SVC_RAIL_ID", "b"}, args: func() []string { return []string{"admin", "rail", "replace"} }},
	}
	maps.Copy(cases, a.moneyCases(store, site))
	maps.Copy(cases, a.partnerCases(store))
	return cases
}

// partnerCases are the acts for a partner, each for an organisation of its own.
func (a admin) partnerCases(store *models.Store) map[models.ActName]actCase {
	const why = "--reason=the partner asked"
	of := func(subject models.SubjectKind, prepare func(models.OrganisationID) error, command ...string) actCase {
		return actCase{subject: subject, args: func() []string {
			organisation := modelstest.Site(a, store).OrganisationID
			if err := prepare(organisation); err != nil {
				a.Fatal(err)
			}
			return append(append([]string{"admin"}, command...), organisation.String(), why)
		}}
	}
	nothing := func(models.OrganisationID) error { return nil }
	pause := func(o models.OrganisationID) error { return store.PauseDebits(a.Context(), o) }
	disable := func(o models.OrganisationID) error {
		_, _, err := store.PutWebhookEndpoint(a.Context(), modelstest.Keyring(a, a.env["SVC_MASTER_KEY"]), o,
			models.SiteID{}, "https://partner.example/hook")
		if err == nil {
			_, err = store.DB().ExecContext(a.Context(), "UPDATE webhook_endpoints SET disabled_at = 1")
		}
		return err
	}
	queue := func(act string, prepare func()) actCase {
		return actCase{subject: models.SubjectQueue, args: func() []string {
			prepare()
			return []string{"admin", "queue", act, "webhooks", why}
		}}
	}
	return map[models.ActName]actCase{
		models.ActPauseDebits:         of(models.SubjectOrganisation, nothing, "debits", "pause"),
		models.ActResumeDebits:        of(models.SubjectOrganisation, pause, "debits", "resume"),
		models.ActRedeliverForPartner: of(models.SubjectWebhookEvent, nothing, "webhook", "redeliver"),
		models.ActUnparkEndpoint:      of(models.SubjectWebhookEndpoint, disable, "webhook", "unpark"),
		models.ActPauseQueue: queue("pause",
			func() { _ = store.ResumeQueue(a.Context(), models.QueueWebhooks) }),
		models.ActResumeQueue: queue("resume",
			func() { _ = store.PauseQueue(a.Context(), models.QueueWebhooks) }),
		models.ActLookUpDebit: {subject: models.SubjectRailKey, args: func() []string {
			return []string{"admin", "debit", "lookup", "r1_key"}
		}},
	}
}

func (a admin) disable(store *models.Store) func(models.ClientID) {
	return func(id models.ClientID) {
		if err := store.DisableClient(a.Context(), id); err != nil {
			a.Fatal(err)
		}
	}
}

func (a admin) removeSecret(store *models.Store, site models.Site) func() []string {
	return func() []string {
		client, secret, err := store.CreateClientWithSecret(a.Context(), site.OrganisationID, "client",
			models.PartnerScopes)
		if err != nil {
			a.Fatal(err)
		}
		return []string{"admin", "client", "secret", "remove", client.ID.String(), models.FingerprintOf(secret)}
	}
}

// keySet writes a valid key set.
func (a admin) keySet() string {
	return writeKeySet(a.T, map[string]string{
		"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
	})
}

func (a admin) moneyCases(store *models.Store, site models.Site) map[models.ActName]actCase {
	n := 0
	return map[models.ActName]actCase{
		models.ActCloseAlert: {subject: models.SubjectAlert, args: func() []string {
			_, err := store.DB().ExecContext(a.Context(), "SELECT raise_alert('lateTruth', 'key', NULL, NULL, '', '')")
			if err != nil {
				a.Fatal(err)
			}
			return []string{"admin", "alerts", "close", "lateTruth", "key"}
		}},
		models.ActAcknowledgeAlert: {subject: models.SubjectAlert, args: func() []string {
			_, err := store.DB().ExecContext(a.Context(), "SELECT raise_alert('lateTruth', 'mine', NULL, NULL, '', '')")
			if err != nil {
				a.Fatal(err)
			}
			return []string{"admin", "alerts", "acknowledge", "lateTruth", "mine"}
		}},
		models.ActDecideRow: {subject: models.SubjectBatchRow, args: func() []string {
			n++
			reference := "batch " + string(rune('a'+n))
			modelstest.Submit(a, store, modelstest.Batch(site, reference, "ada"))
			a.unconfirm(store)
			return []string{"admin", "debit", "decide", site.ID.String(), reference, "row-0", "--debited"}
		}},
		models.ActDecidePayment: {subject: models.SubjectPaymentIntent, args: func() []string {
			intent := modelstest.Intent(a, store, site.ID, 500)
			modelstest.Pay(a, store, intent, models.Party{CustomerID: "ada", AgreementID: "agreement"})
			return []string{"admin", "debit", "decide-payment", intent.ID.String(), "--not-debited"}
		}},
	}
}

// unconfirm lets the open batch reach its deadline in doubt, after a restore.
func (a admin) unconfirm(store *models.Store) {
	a.Helper()
	if _, err := store.BeginEpoch(a.Context()); err != nil {
		a.Fatal(err)
	}
	modelstest.AdvanceClock(a, store, models.SettleWithin)
	if _, err := store.CloseOverdueBatch(a.Context()); err != nil {
		a.Fatal(err)
	}
}

// Refused acts are recorded with their reason, under the name of the flag or the account.
func TestRefusedCommandsAreRecorded(t *testing.T) {
	a := newAdmin(t)
	store := a.store()
	const unknown = "cli_01932c07-0000-7000-8000-000000000001"
	a.fails("client", "disable", unknown, "--operator", "john")
	a.fails("client", "disable", "nonsense") // names no subject
	for _, name := range []string{"two\nlines", strings.Repeat("x", 65), "\u202enhoj", "\xff"} {
		a.fails("client", "disable", unknown, "--operator", name)
	}
	a.fails("client", "disable", unknown)
	got := a.entries(store)
	if len(got) != 2 {
		t.Fatalf("%d entries: %+v", len(got), got)
	}
	if got[1].Actor != "john" || got[0].Actor != accountName() {
		t.Errorf("actors %s, %s", got[1].Actor, got[0].Actor)
	}
	for _, e := range got {
		if e.Act != models.ActDisableClient || e.Outcome != models.ActRefused || e.Code != "notFound" ||
			e.Subject != unknown {
			t.Errorf("%+v", e)
		}
	}
}

// A database without the schema, or of another deployment, gets no entry.
func TestNothingIsRecordedElsewhere(t *testing.T) {
	t.Parallel()
	variables := map[string]string{"SVC_DATABASE_URL": modelstest.EmptyDSN(t)}
	if code, _, stderr := svc(t, variables, "admin", "organisation", "add", "x"); code != 1 ||
		strings.Contains(stderr, "audit_log") {
		t.Errorf("without a schema: %d, %s", code, stderr)
	}
	if code, _, stderr := svc(t, variables, "migrate", "up", "--operator", "jane"); code != 0 {
		t.Fatalf("migrate: %s", stderr)
	}
	a := admin{t, variables}
	store := a.store()
	if got := a.entries(store); len(got) != 1 || got[0].Act != models.ActMigrate || got[0].Actor != "jane" {
		t.Errorf("the first migration left %+v", got)
	}
	if _, err := store.JoinDeployment(t.Context(), models.Deployment{Environment: models.EnvSandbox}); err != nil {
		t.Fatal(err)
	}
	variables["SVC_ENV"] = "production"
	a.fails("organisation", "add", "x")
	if got := a.entries(store); len(got) != 1 {
		t.Errorf("the refusal left %+v", got)
	}
}

// The log is listed, filtered and exported. Exports stream in pages.
func TestAdminPrintsTheLog(t *testing.T) {
	a := newAdmin(t)
	organisation := a.run("organisation", "add", "Harbour Rentals", "--operator", "jane")
	for range 3 {
		a.run("site", "add", organisation, "=cmd()", "--operator", "=john")
	}
	if table := strings.Split(a.run("log"), "\n"); len(table) != 5 || !strings.HasPrefix(table[0], "AT ") ||
		!strings.Contains(table[4], organisation) {
		t.Errorf("table:\n%s", strings.Join(table, "\n"))
	}
	if got := strings.Count(a.run("log", "--limit", "2"), "addSite"); got != 2 {
		t.Errorf("%d entries of two", got)
	}
	lines := strings.Split(a.run("log", "-o", "json", "--limit", "0", "--organisation", organisation), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	var entry models.AuditEntry
	if err := json.Unmarshal([]byte(lines[3]), &entry); err != nil || entry.Actor != "jane" ||
		entry.OrganisationID.String() != organisation {
		t.Errorf("%s: %v", lines[3], err)
	}
	csv := a.run("log", "-o", "csv", "--act", "addSite", "--actor", "=john")
	if strings.Count(csv, ",'=john,") != 3 || !strings.HasPrefix(csv, "id,at,recordedAt,") {
		t.Errorf("csv:\n%s", csv)
	}
	if out := a.run("log", "-o", "json", "--to", "2026-01-01"); out != "" {
		t.Errorf("of the past: %s", out)
	}
	if out := a.run("log", "-o", "json", "--from", "2026-01-01T00:00:00Z", "--subject", organisation); out == "" {
		t.Error("nothing since")
	}
	for _, flags := range [][]string{
		{"--from", "yesterday"}, {"--act", "nonsense"}, {"--organisation", "x"}, {"-o", "xml"}, {"--limit", "-1"},
	} {
		a.fails(append([]string{"log"}, flags...)...)
	}
}
