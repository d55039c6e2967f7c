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

	"go.yaml.in/yaml/v4"
)

// exported are the series of a real API and a real worker: names, labels, and the values that these have.
type exported map[string]map[string][]string

var (
	seriesLine = regexp.MustCompile(`(?m)^([a-z_:]\w*)(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

func scrape(t *testing.T) exported {
	t.Helper()
	g, all := newGround(t), exported{}
	for _, w := range kubernetes(t) {
		if w.name != "api" && w.name != "worker" {
			continue
		}
		address := g.start(t, w)
		await(t, address+"/readyz", http.StatusOK)
		for _, m := range seriesLine.FindAllStringSubmatch(await(t, address+"/metrics", http.StatusOK), -1) {
			if all[m[1]] == nil {
				all[m[1]] = map[string][]string{"job": nil, "instance": nil} // Prometheus adds these
			}
			for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
				all[m[1]][pair[1]] = append(all[m[1]][pair[1]], pair[2])
			}
		}
	}
	return all
}

// expressions are all in PromQL that is deployed, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range alertRules(t) {
		all["alert "+r.Alert] = r.Expr
	}
	if len(all) < 20 {
		t.Fatalf("%d alerts", len(all))
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
		t.Fatalf("%d expressions of panels", len(all)-before)
	}
	before = len(all)
	for _, m := range regexp.MustCompile(`(?m)^ +query: (.*)$`).FindAllStringSubmatch(read(t, "kubernetes/worker.yaml"), -1) {
		all["trigger "+m[1]] = m[1]
	}
	if len(all) != before+2 {
		t.Fatalf("%d triggers", len(all)-before)
	}
	return all
}

type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var rules []alertRule
	for _, group := range readYAML[struct{ Groups []struct{ Rules []alertRule } }](t, "prometheus/alerts.yaml").Groups {
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

// missing says what an expression asks for that is not exported.
func (e exported) missing(expr string) []string {
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

// TestMissing is of the test's own eyes.
func TestMissing(t *testing.T) {
	t.Parallel()
	e := exported{"svc_a": {"q": {"x"}}, "svc_b": {"q": {"y"}, "le": {"1"}}}
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

// Whatever is asked for in alerts, on the dashboard and for scaling is there, also before anything has happened.
func TestExpressionsAskForWhatIsExported(t *testing.T) {
	t.Parallel()
	all := scrape(t)
	for where, expr := range expressions(t) {
		for _, missing := range all.missing(expr) {
			t.Errorf("%s: nobody exports %s", where, missing)
		}
	}
	for _, document := range operatorsDocuments {
		for _, name := range regexp.MustCompile(`\b(?:svc|go_sql|process)_[a-z_]+\b`).FindAllString(read(t, document), -1) {
			if all[name] == nil && all[name+"_count"] == nil && name != "svc_now" { // which is a function of the database
				t.Errorf("%s: nobody exports %s", document, name)
			}
		}
	}
}

// promtool is where .ci/promtool finds it or has put it.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	must(t, err)
	path := filepath.Join(cache, "svc-tools/prometheus/usr/bin/promtool")
	if _, err := os.Stat(path); err != nil {
		t.Skip("promtool is not there; .ci/promtool gets it")
	}
	return path
}

// Expressions of alerts are parsed by .ci/lint, with their tests; here are all.
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
