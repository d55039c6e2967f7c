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

// anchors returns the link anchors of the runbook's headings.
func anchors(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	punctuation := regexp.MustCompile(`[^a-z0-9 -]`)
	for _, m := range regexp.MustCompile(`(?m)^##? (.*)$`).FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1) {
		anchor := punctuation.ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return all
}

// Every alert has a severity, a summary, a section of the runbook and a test, in the same order.
func TestEveryAlertHasARunbookSection(t *testing.T) {
	t.Parallel()
	var alerts, tested []string
	known := anchors(t)
	for _, r := range slices.Concat(alertRules(t, "alerts.yaml"), alertRules(t, "host.yaml")) {
		alerts = append(alerts, r.Alert)
		if r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
			t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], "RUNBOOK.md#")
		if !ok || !known[anchor] || anchor != strings.ToLower(r.Alert) {
			t.Errorf("%s points to %s", r.Alert, r.Annotations["runbook_url"])
		}
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (Svc\w+)$`).FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1) {
		sections = append(sections, m[1])
	}
	if diff := cmp.Diff(alerts, sections); diff != "" {
		t.Errorf("alerts and sections of the runbook differ (-alerts +sections):\n%s", diff)
	}
	alertName := regexp.MustCompile(`alertname="(\w+)"`)
	for _, m := range alertName.FindAllStringSubmatch(read(t, "prometheus/alerts_test.yaml"), -1) {
		tested = append(tested, m[1])
	}
	slices.Sort(alerts)
	slices.Sort(tested)
	tested = slices.Compact(tested) // an alert fires in several worlds
	if diff := cmp.Diff(alerts, tested); diff != "" {
		t.Errorf("alerts and tests in alerts_test.yaml differ (-alerts +tested):\n%s", diff)
	}
}

// The inhibition of alertmanager.yaml names alerts that exist. None holds itself back for ever.
func TestInhibitionNamesAlerts(t *testing.T) {
	t.Parallel()
	type rule struct {
		Source []string `yaml:"source_matchers"`
		Target []string `yaml:"target_matchers"`
	}
	rules := readYAML[struct {
		Rules []rule `yaml:"inhibit_rules"`
	}](t, "prometheus/alertmanager.yaml").Rules
	if len(rules) < 5 {
		t.Fatalf("found %d rules", len(rules))
	}
	var names []string
	for _, r := range alertRules(t, "alerts.yaml") {
		names = append(names, r.Alert)
	}
	matching := func(matchers []string) (matched []string) {
		t.Helper()
		if len(matchers) != 1 {
			t.Fatalf("matchers %q", matchers)
		}
		m := regexp.MustCompile(`^alertname=~?"(.*)"$`).FindStringSubmatch(matchers[0])
		if m == nil {
			t.Fatalf("matcher %q", matchers[0])
		}
		pattern := regexp.MustCompile("^(?:" + m[1] + ")$")
		for _, name := range names {
			if pattern.MatchString(name) {
				matched = append(matched, name)
			}
		}
		if len(matched) <= strings.Count(m[1], "|") && !strings.Contains(m[1], "(") {
			t.Errorf("%q matches only %q", m[1], matched)
		}
		return matched
	}
	holds := map[string][]string{}
	for _, r := range rules {
		for _, source := range matching(r.Source) {
			holds[source] = append(holds[source], matching(r.Target)...)
		}
	}
	for source, targets := range holds {
		for _, target := range targets {
			if source == target || slices.Contains(holds[target], source) {
				t.Errorf("%s and %s hold each other back", source, target)
			}
		}
	}
}

// Every kind of alert in the database has a Prometheus alert, and the runbook mentions it.
func TestEveryKindOfAlertIsCovered(t *testing.T) {
	t.Parallel()
	for _, kind := range models.AlertKinds {
		for _, file := range []string{"prometheus/alerts.yaml", "RUNBOOK.md"} {
			if !regexp.MustCompile(`(?i)` + kind).MatchString(read(t, file)) {
				t.Errorf("%s does not mention %s", file, kind)
			}
		}
	}
}

func TestRunbookLinksResolve(t *testing.T) {
	t.Parallel()
	known := anchors(t)
	links := regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1)
	if len(links) < 20 {
		t.Fatalf("found %d links", len(links))
	}
	for _, m := range links {
		if !known[m[1]] {
			t.Errorf("no heading has the anchor #%s", m[1])
		}
	}
}

// operatorDocuments are the documents for operators.
var operatorDocuments = []string{"RUNBOOK.md", "OPERATIONS.md", "SLO.md"}

func TestDocumentedVariablesExist(t *testing.T) {
	t.Parallel()
	known := configured(t)
	for _, m := range regexp.MustCompile(`or (SVC_\w+_FILE):`).FindAllStringSubmatch(output(t, nil, "config"), -1) {
		known[m[1]] = ""
	}
	documents := slices.Concat(operatorDocuments,
		[]string{"../README.md", "../.github/SECURITY.md", "../.github/CONTRIBUTING.md"})
	for _, document := range documents {
		for _, name := range regexp.MustCompile(`\bSVC_[A-Z_]+[A-Z]\b`).FindAllString(read(t, document), -1) {
			if _, ok := known[name]; !ok {
				t.Errorf("%s: the service has no variable %s", document, name)
			}
		}
	}
}

// OPERATIONS.md lists all variables with their defaults, as svc config prints them.
func TestOperationsListsEveryVariable(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(SVC_\\w+)` \\| (?:`([^`]*)`|–) \\| \\S.* \\|$")
	for _, m := range row.FindAllStringSubmatch(read(t, "OPERATIONS.md"), -1) {
		listed[m[1]] = m[2]
	}
	if diff := cmp.Diff(configured(t), listed); diff != "" {
		t.Errorf("variables and defaults differ (-svc config +OPERATIONS.md):\n%s", diff)
	}
}

// documentedCommand matches an svc command with its arguments and flags.
var documentedCommand = regexp.MustCompile(
	`\bsvc ((?:admin|api|config|dashboard|dev|migrate|rail|worker)\b(?: [A-Za-z_.\[\]-]+)*)`)

// Every svc command and flag in the documents exists in the binary's help.
func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	for document, atLeast := range map[string]int{
		"RUNBOOK.md": 30, "OPERATIONS.md": 30, "../.github/SECURITY.md": 1, "../README.md": 1,
	} {
		commands := documentedCommand.FindAllStringSubmatch(strings.ReplaceAll(read(t, document), "`", "\n"), -1)
		if len(commands) < atLeast {
			t.Errorf("found %[2]d commands in %[1]s", document, len(commands))
		}
		for _, m := range commands {
			fields := strings.Fields(m[1])
			var path []string
			for _, w := range fields {
				if w != strings.ToLower(w) || strings.HasPrefix(w, "-") {
					break
				}
				path = append(path, w)
			}
			help := output(t, nil, append(slices.Clone(path), "--help")...)
			usage := func() bool { return strings.Contains(help, "  svc "+strings.Join(path, " ")) }
			for len(path) > 1 && !usage() && takesArguments(help) {
				path = path[:len(path)-1] // a lower-case argument, or prose
			}
			if !usage() {
				t.Errorf("%s: there is no svc %s:\n%s", document, m[1], help)
			}
			for _, flag := range fields {
				if strings.HasPrefix(flag, "--") && !strings.Contains(help, flag+" ") {
					t.Errorf("%s: svc %s has no flag %s", document, m[1], flag)
				}
			}
		}
	}
}

// takesArguments reports whether a command takes arguments instead of subcommands.
func takesArguments(help string) bool { return !strings.Contains(help, "Available Commands:") }

// The service logs every log line that the runbook quotes.
func TestRunbookLogLinesExist(t *testing.T) {
	t.Parallel()
	logLine := regexp.MustCompile("(?:log|log lines?)\\s+`([A-Za-z][^`]*)`|grep '\"([a-z ]+)\"'")
	lines := logLine.FindAllStringSubmatch(read(t, "RUNBOOK.md"), -1)
	if len(lines) < 6 {
		t.Fatalf("found %d log lines", len(lines))
	}
	var source strings.Builder
	for _, folder := range []string{"api", "cmd/svc", "jobs", "models", "queue"} {
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
			t.Errorf("the service does not log %q", line)
		}
	}
}

// Every SQL statement of the runbook runs on the current schema.
func TestRunbookSQLRuns(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	text := read(t, "RUNBOOK.md")
	comment := regexp.MustCompile(`(?m)^\s*(--|\\copy).*$`)
	var statements []string
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for statement := range strings.SplitSeq(comment.ReplaceAllString(m[1], ""), ";") {
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
		statement = strings.ReplaceAll(statement, "'…'", "'01a21f3c-0dad-7f16-b66c-d742610c4384'")
		if _, err := tx.Tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v:\n%s", err, statement)
		}
	}
	if n < 10 {
		t.Errorf("found %d statements", n)
	}
}
