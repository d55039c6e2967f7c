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
