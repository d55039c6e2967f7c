package deploy_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// exportedMetrics maps each metric of the running processes to its labels, and each label to its
// values.
type exportedMetrics map[string]map[string][]string

var (
	seriesLine = regexp.MustCompile(`(?m)^([a-z_:]\w*)(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// processes starts an API, a worker and a dashboard, and returns the URLs of their metrics.
func processes(t *testing.T) (urls []string) {
	t.Helper()
	env := newEnvironment(t)
	for _, w := range kubernetes(t) {
		if w.kind == "Job" {
			continue
		}
		if w.name == "api" || w.name == "dashboard" {
			w.variables["SVC_DATABASE_READ_URL"] = env.dsn // not a standby, so that the primary serves everything
		}
		url, ops := env.start(t, w)
		await(t, ops+"/readyz", http.StatusOK)
		if w.name == "api" { // which has the metrics of requests once it has answered one
			await(t, url+"/openapi.json", http.StatusOK)
		}
		urls = append(urls, ops+"/metrics")
	}
	return urls
}

// scrape adds the metrics at url.
func (e exportedMetrics) scrape(t *testing.T, url string) {
	t.Helper()
	for _, m := range seriesLine.FindAllStringSubmatch(await(t, url, http.StatusOK), -1) {
		if e[m[1]] == nil {
			e[m[1]] = map[string][]string{"job": nil, "instance": nil} // added by Prometheus
		}
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if values := e[m[1]][pair[1]]; !slices.Contains(values, pair[2]) {
				e[m[1]][pair[1]] = append(values, strings.Clone(pair[2]))
			}
		}
	}
}

// expressions returns all PromQL expressions of alerts, dashboard and autoscaling, by where they
// are used.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range alertRules(t, "alerts.yaml") {
		all["alert "+r.Alert] = r.Expr
	}
	if len(all) < 20 {
		t.Fatalf("found %d alerts", len(all))
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	must(t, json.Unmarshal([]byte(read(t, "grafana/dashboard.json")), &dashboard))
	before := len(all)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title+" "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	if len(all) < before+15 {
		t.Fatalf("found %d expressions of panels", len(all)-before)
	}
	before = len(all)
	query := regexp.MustCompile(`(?m)^ +query: (.*)$`)
	for _, m := range query.FindAllStringSubmatch(read(t, "kubernetes/worker.yaml"), -1) {
		all["trigger "+m[1]] = m[1]
	}
	if len(all) != before+3 {
		t.Fatalf("found %d triggers", len(all)-before)
	}
	return all
}

type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T, file string) []alertRule {
	t.Helper()
	var rules []alertRule
	for _, group := range readYAML[struct{ Groups []struct{ Rules []alertRule } }](t, "prometheus/"+file).Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

var (
	rangePart = regexp.MustCompile(`\[[^\]]*\]`)
	groupPart = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	selector  = regexp.MustCompile(`\b([a-zA-Z_:][\w:]*)\s*(\{[^}]*\}|\(|)`)
	matcher   = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	operators = []string{"and", "or", "unless", "bool", "offset"}
)

// missing returns the metrics and labels that an expression uses but the service does not export.
func (e exportedMetrics) missing(expr string) []string {
	var missing []string
	expr = rangePart.ReplaceAllString(expr, "")
	grouped := groupPart.FindAllStringSubmatch(expr, -1)
	labels := map[string]bool{}
	for _, m := range selector.FindAllStringSubmatch(groupPart.ReplaceAllString(expr, ""), -1) {
		name, rest := m[1], m[2]
		if rest == "(" || slices.Contains(operators, name) {
			continue
		}
		series, ok := e[name]
		if !ok {
			missing = append(missing, "the metric "+name)
			continue
		}
		for label := range series {
			labels[label] = true
		}
		for _, m := range matcher.FindAllStringSubmatch(rest, -1) {
			values, ok := series[m[1]]
			if !ok || m[2] == "=" && !slices.Contains(values, m[3]) {
				missing = append(missing, name+"{"+m[0]+"}")
			}
		}
	}
	for _, m := range grouped {
		for label := range strings.SplitSeq(m[1], ",") {
			if label = strings.TrimSpace(label); !labels[label] {
				missing = append(missing, "a label "+label)
			}
		}
	}
	return missing
}

func TestMissing(t *testing.T) {
	t.Parallel()
	e := exportedMetrics{"svc_a": {"q": {"x"}}, "svc_b": {"q": {"y"}, "le": {"1"}}}
	for expr, want := range map[string]int{
		`max(svc_a) > 1 and on (q) sum by (q, le) (rate(svc_b{q="y"}[5m]))`: 0,
		`max(svc_c) or svc_a`:    1,
		`svc_a{q="z"}`:           1,
		`svc_a{q=~"x|z"}`:        0,
		`svc_a{r=~"x"}`:          1,
		`sum by (le) (svc_a{})`:  1,
		`absent(svc_d{q="x"})`:   1,
		`svc_a / svc_b{le="1"}`:  0,
		`svc_a / svc_b{le="10"}`: 1,
	} {
		if got := e.missing(expr); len(got) != want {
			t.Errorf("%s: %q, want %d", expr, got, want)
		}
	}
}

// Every metric and label in alerts, dashboard, autoscaling and documents is exported, even before
// any traffic. A scrape leaves out what Postgres does not answer in time: the test scrapes again.
func TestUsedMetricsAreExported(t *testing.T) {
	t.Parallel()
	urls, used, documents := processes(t), expressions(t), documentedMetrics(t)
	exported, deadline := exportedMetrics{}, time.Now().Add(awaitTimeout)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for ; ; <-again.C {
		for _, url := range urls {
			exported.scrape(t, url)
		}
		var missing []string
		for where, expr := range used {
			for _, name := range exported.missing(expr) {
				missing = append(missing, where+": "+name)
			}
		}
		for name, document := range documents {
			if exported[name] == nil && exported[name+"_count"] == nil {
				missing = append(missing, document+": "+name)
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not exported:\n%s", strings.Join(missing, "\n"))
		}
	}
}

// documentedMetrics returns the metrics in the operators' documents, each with one of them.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, document := range operatorDocuments {
		for _, name := range regexp.MustCompile(`\b(?:svc|go_sql|process)_[a-z_]+\b`).
			FindAllString(read(t, document), -1) {
			if name != "svc_now" { // an SQL function
				all[name] = document
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d metrics in documents", len(all))
	}
	return all
}

// promtool returns the path of promtool, which .ci/promtool installs.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	must(t, err)
	path := filepath.Join(cache, "svc-tools/prometheus/usr/bin/promtool")
	if _, err := os.Stat(path); err != nil {
		t.Skip("promtool is not installed; run .ci/promtool")
	}
	return path
}

// All expressions are valid PromQL. .ci/lint checks only those of alerts.
func TestExpressionsParse(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for _, expr := range expressions(t) {
		rules = append(rules, rule{"svc:expression", expr})
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	out, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "all", "rules": rules}}})
	must(t, err)
	must(t, os.WriteFile(file, out, 0o600))
	if out, err := exec.Command(promtool(t), "check", "rules", "--lint=none", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
