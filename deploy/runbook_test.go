package deploy_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// anchors are the runbook's headings as links name them.
func anchors(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^##? (.*)$`).FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1) {
		all[strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

func TestEveryAlertHasItsSection(t *testing.T) {
	t.Parallel()
	var alerts, tested []string
	there := anchors(t)
	for _, r := range alertRules(t) {
		alerts = append(alerts, r.Alert)
		if r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
			t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], "RUNBOOK.md#")
		if !ok || !there[anchor] || anchor != strings.ToLower(r.Alert) {
			t.Errorf("%s points to %s", r.Alert, r.Annotations["runbook_url"])
		}
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (Svc\w+)$`).FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1) {
		sections = append(sections, m[1])
	}
	if diff := cmp.Diff(alerts, sections); diff != "" {
		t.Errorf("alerts, and the runbook's sections (-alerts +sections):\n%s", diff)
	}
	for _, m := range regexp.MustCompile(`alertname="(\w+)"`).FindAllStringSubmatch(read(t, "prometheus/alerts_test.yaml"), -1) {
		tested = append(tested, m[1])
	}
	slices.Sort(alerts)
	slices.Sort(tested)
	if diff := cmp.Diff(alerts, tested); diff != "" {
		t.Errorf("alerts, and those that are made to fire in alerts_test.yaml (-alerts +tested):\n%s", diff)
	}
}

// Each kind of alert in the database has an alert of Prometheus, and a word in the runbook.
func TestEveryKindOfAlertIsCovered(t *testing.T) {
	t.Parallel()
	for _, kind := range models.AlertKinds {
		for _, file := range []string{"prometheus/alerts.yaml", "RUNBOOK.md"} {
			if !regexp.MustCompile(`(?i)` + kind).MatchString(read(t, file)) {
				t.Errorf("%s says nothing of %s", file, kind)
			}
		}
	}
}

func TestRunbookLinksLead(t *testing.T) {
	t.Parallel()
	there := anchors(t)
	links := regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1)
	if len(links) < 20 {
		t.Fatalf("%d links", len(links))
	}
	for _, m := range links {
		if !there[m[1]] {
			t.Errorf("nothing is called #%s", m[1])
		}
	}
}

// operatorsDocuments are what operators read.
var operatorsDocuments = []string{"RUNBOOK.md", "OPERATIONS.md"}

func TestDocumentedVariablesExist(t *testing.T) {
	t.Parallel()
	known := configured(t)
	for _, document := range append(operatorsDocuments, "../README.md", "../.github/SECURITY.md", "../.github/CONTRIBUTING.md") {
		for _, name := range regexp.MustCompile(`\bSVC_[A-Z_]+[A-Z]\b`).FindAllString(read(t, document), -1) {
			if _, ok := known[name]; !ok {
				t.Errorf("%s: the service has no variable %s", document, name)
			}
		}
	}
}

// TestOperationsListsEveryVariable holds the table of variables and defaults to svc config.
func TestOperationsListsEveryVariable(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(SVC_\\w+)` \\| (?:`([^`]*)`|–) \\| \\S.* \\|$").FindAllStringSubmatch(read(t, "OPERATIONS.md"), -1) {
		listed[m[1]] = m[2]
	}
	if diff := cmp.Diff(configured(t), listed); diff != "" {
		t.Errorf("variables and defaults (-svc config +OPERATIONS.md):\n%s", diff)
	}
}

// documentedCommand finds a command of svc with its arguments and flags.
var documentedCommand = regexp.MustCompile(`\bsvc ((?:admin|api|config|dashboard|dev|migrate|rail|worker)\b(?: [A-Za-z_.\[\]-]+)*)`)

// TestDocumentedCommandsExist holds each command of svc that the documents name, with its flags, to the binary's own help.
func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	for document, least := range map[string]int{"RUNBOOK.md": 30, "OPERATIONS.md": 30, "../.github/SECURITY.md": 1, "../README.md": 1} {
		commands := documentedCommand.FindAllStringSubmatch(strings.ReplaceAll(read(t, document), "`", "\n"), -1)
		if len(commands) < least {
			t.Errorf("%s names %d commands", document, len(commands))
		}
		for _, m := range commands {
			words := strings.Fields(m[1])
			var path []string
			for _, w := range words {
				if w != strings.ToLower(w) || strings.HasPrefix(w, "-") {
					break
				}
				path = append(path, w)
			}
			help := output(t, nil, append(slices.Clone(path), "--help")...)
			for len(path) > 1 && !strings.Contains(help, "  svc "+strings.Join(path, " ")) && takesArguments(help) {
				path = path[:len(path)-1] // an argument in lower case, or prose
			}
			if !strings.Contains(help, "  svc "+strings.Join(path, " ")) {
				t.Errorf("%s: there is no svc %s:\n%s", document, m[1], help)
			}
			for _, flag := range words {
				if strings.HasPrefix(flag, "--") && !strings.Contains(help, flag+" ") {
					t.Errorf("%s: svc %s has no flag %s", document, m[1], flag)
				}
			}
		}
	}
}

// takesArguments reports whether a command takes arguments rather than subcommands.
func takesArguments(help string) bool { return !strings.Contains(help, "Available Commands:") }

// TestRunbookLogLinesExist holds each log line that the runbook quotes to the source.
func TestRunbookLogLinesExist(t *testing.T) {
	t.Parallel()
	lines := regexp.MustCompile("(?:log|log lines?)\\s+`([A-Za-z][^`]*)`|grep '\"([a-z ]+)\"'").FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1)
	if len(lines) < 6 {
		t.Fatalf("%d log lines found", len(lines))
	}
	var source strings.Builder
	for _, folder := range []string{"api", "jobs", "models", "queue"} {
		files, err := filepath.Glob("../" + folder + "/*.go")
		must(t, err)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				source.WriteString(read(t, file))
			}
		}
	}
	for _, m := range lines {
		if line := m[1] + m[2]; !strings.Contains(source.String(), `"`+line+`"`) {
			t.Errorf("the service never logs %q", line)
		}
	}
}

// Every statement of the runbook is one of this schema.
func TestRunbookSQLRuns(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	text := read(t, "RUNBOOK.md")
	var statements []string
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for statement := range strings.SplitSeq(regexp.MustCompile(`(?m)^\s*(--|\\copy).*$`).ReplaceAllString(m[1], ""), ";") {
			statements = append(statements, statement)
		}
	}
	for _, m := range regexp.MustCompile("`((?:SELECT|UPDATE|SET) [^`]*)`").FindAllStringSubmatch(text, -1) {
		statements = append(statements, m[1])
	}
	tx, err := store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	n := 0
	for _, statement := range statements {
		if strings.TrimSpace(statement) == "" || strings.HasPrefix(statement, "SET ") {
			continue
		}
		n++
		if _, err := tx.Tx.ExecContext(t.Context(), strings.ReplaceAll(statement, "'…'", "'01a21f3c-0dad-7f16-b66c-d742610c4384'")); err != nil {
			t.Fatalf("%v:\n%s", err, statement)
		}
	}
	if n < 10 {
		t.Errorf("%d statements found", n)
	}
}
