package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"partnerbilling/deploy/local"
)

// set is a set of alert names.
type set map[string]bool

func (s set) add(names set) { maps.Copy(s, names) }

func (s set) names() []string { return slices.Sorted(maps.Keys(s)) }

func (s set) hasAll(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !s[name] })
}

// notified records the notifications of Alertmanager.
type notified struct {
	mu             sync.Mutex
	pages, tickets set // the alerts sent to the pager, and to the other receiver
}

// reset forgets all notifications.
func (n *notified) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pages, n.tickets = set{}, set{}
}

// seen returns the alerts of the notifications since the last reset.
func (n *notified) seen() (pages, tickets set) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.pages), maps.Clone(n.tickets)
}

// ServeHTTP receives a notification. The URL's path names the receiver in Alertmanager's
// configuration.
func (n *notified) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var message struct {
		Alerts []struct {
			Status string
			Labels map[string]string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.tickets
	if strings.HasSuffix(r.URL.Path, "pager") {
		to = n.pages
	}
	for _, a := range message.Alerts {
		if a.Status == "firing" {
			to[a.Labels["alertname"]] = true
		}
	}
}

// monitor runs Prometheus and Alertmanager, and asks them which alerts fire.
type monitor struct {
	// rules is the folder of the production configuration. dir is the folder of the changed
	// configuration, the data and the logs.
	rules, dir string
	speed      float64 // divides the times of the rules
	fleet      *fleet
	alerts     []string // names of all rules
	ports      ports

	notified                 notified
	receiver                 *httptest.Server
	processes                []*exec.Cmd
	prometheus, alertmanager string // URLs
}

// start starts both programs, and waits until no alert but lasting ones fires, for two minutes at
// most.
func (m *monitor) start(ctx context.Context) error {
	m.notified.reset()
	m.receiver = httptest.NewServer(&m.notified)
	addresses, err := m.ports.reserve(2)
	if err != nil {
		return err
	}
	m.prometheus, m.alertmanager = "http://"+addresses[0], "http://"+addresses[1]
	if err := errors.Join(m.writeRules(), m.writeAlertmanager(), m.writePrometheus(addresses[1])); err != nil {
		return err
	}
	alertmanager := exec.Command("prometheus-alertmanager", "--config.file="+m.path("alertmanager.yaml"),
		"--storage.path="+m.path("alertmanager"), "--web.listen-address="+addresses[1], "--cluster.listen-address=")
	prometheus := exec.Command("prometheus", "--config.file="+m.path("prometheus.yaml"),
		"--storage.tsdb.path="+m.path("prometheus"), "--web.listen-address="+addresses[0])
	for _, cmd := range []*exec.Cmd{alertmanager, prometheus} {
		log, err := os.Create(m.path(filepath.Base(cmd.Path) + ".log"))
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return err
		}
		m.processes = append(m.processes, cmd)
	}
	err = errors.Join(awaitURL(ctx, m.prometheus+"/-/ready"), awaitURL(ctx, m.alertmanager+"/-/ready"))
	if err != nil {
		return err
	}
	return m.awaitCalm(ctx, set{})
}

func (m *monitor) stop() {
	for _, cmd := range m.processes {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if m.receiver != nil {
		m.receiver.Close()
	}
	m.ports.release()
}

// path returns the path of a file in the monitor's folder.
func (m *monitor) path(name string) string { return filepath.Join(m.dir, name) }

var (
	// rangeOf matches the range of a selector or subquery, such as [5m] or [6h:30s].
	rangeOf   = regexp.MustCompile(`\[(\d+[smhd])(?::\d+s)?\]`)
	durations = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	// threshold matches a comparison with a number or a product of numbers.
	threshold = regexp.MustCompile(`> [\d.]+(?: \* [\d.]+)*`)
	// lowered replaces thresholds that a fault would reach only after the end of a run.
	lowered = map[string]string{
		"> 60": "> 8", "> 120": "> 8", "> 900": "> 5", "> 1800": "> 15", "> 256 * 1024 * 1024": "> 1024 * 1024",
	}
)

// lower lowers the thresholds in an expression.
func lower(expr string) string {
	return threshold.ReplaceAllStringFunc(expr, func(part string) string { return cmp.Or(lowered[part], part) })
}

// shorten divides a duration of one number and unit, such as "15m", by the speed. It returns the
// result, but at least least, in Prometheus's notation: "30000ms".
func (m *monitor) shorten(text string, least time.Duration) string {
	n := 0
	_, _ = fmt.Sscanf(text, "%d", &n)
	d := time.Duration(float64(time.Duration(n)*durations[text[len(text)-1]]) / m.speed)
	return fmt.Sprintf("%dms", max(d, least).Milliseconds())
}

// rule is an alerting rule.
type rule struct {
	Alert, Expr         string
	For                 string `yaml:",omitempty"`
	Labels, Annotations map[string]string
}

// read decodes a YAML file of the production configuration.
func (m *monitor) read(name string, into any) error {
	text, err := os.ReadFile(filepath.Join(m.rules, name))
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

// writeRules writes the alerting rules with shorter times and lowered thresholds.
func (m *monitor) writeRules() error {
	var rules struct {
		Groups []struct {
			Name  string
			Rules []*rule
		}
	}
	if err := m.read("alerts.yaml", &rules); err != nil {
		return err
	}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			m.alerts = append(m.alerts, r.Alert)
			if r.For != "" {
				r.For = m.shorten(r.For, 0)
			}
			r.Expr = rangeOf.ReplaceAllStringFunc(lower(r.Expr), func(part string) string {
				span := m.shorten(rangeOf.FindStringSubmatch(part)[1], 5*time.Second) // at least four scrapes
				if strings.Contains(part, ":") {
					span += ":1s"
				}
				return "[" + span + "]"
			})
		}
	}
	return m.write("alerts.yaml", rules)
}

// writeAlertmanager writes the configuration of Alertmanager with shorter waits, and with this
// process as the receivers.
func (m *monitor) writeAlertmanager() error {
	var cfg struct {
		Route        map[string]any
		Receivers    []map[string]any
		InhibitRules []map[string]any `yaml:"inhibit_rules"`
	}
	if err := m.read("alertmanager.yaml", &cfg); err != nil {
		return err
	}
	for _, name := range []string{"group_wait", "group_interval"} {
		cfg.Route[name] = m.shorten(fmt.Sprint(cfg.Route[name]), 3*time.Second)
	}
	for _, r := range cfg.Receivers {
		r["webhook_configs"] = []any{map[string]any{"url": fmt.Sprint(m.receiver.URL, "/", r["name"])}}
	}
	return m.write("alertmanager.yaml", cfg)
}

// writePrometheus writes a configuration of Prometheus that scrapes the fleet every second.
func (m *monitor) writePrometheus(alertmanager string) error {
	return m.write("prometheus.yaml", map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{m.path("alerts.yaml")},
		"alerting": map[string]any{"alertmanagers": []any{map[string]any{
			"static_configs": []any{map[string]any{"targets": []string{alertmanager}}},
		}}},
		"scrape_configs": []any{map[string]any{
			"job_name": "svc", "static_configs": []any{map[string]any{"targets": m.fleet.targets()}},
		}},
	})
}

// write writes a YAML file into the monitor's folder.
func (m *monitor) write(name string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(m.path(name), text, 0o600)
}

// firing returns the alerts that fire in Prometheus.
func (m *monitor) firing(ctx context.Context) (set, error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := getJSON(ctx, m.prometheus+"/api/v1/alerts", &answer); err != nil {
		return nil, err
	}
	firing := set{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			firing[a.Labels["alertname"]] = true
		}
	}
	return firing, nil
}

// inhibited returns the alerts that Alertmanager holds back because another alert fires.
func (m *monitor) inhibited(ctx context.Context) (set, error) {
	var alerts []struct {
		Labels map[string]string
		Status struct{ InhibitedBy []string }
	}
	if err := getJSON(ctx, m.alertmanager+"/api/v2/alerts?active=false&inhibited=true", &alerts); err != nil {
		return nil, err
	}
	inhibited := set{}
	for _, a := range alerts {
		if len(a.Status.InhibitedBy) > 0 {
			inhibited[a.Labels["alertname"]] = true
		}
	}
	return inhibited, nil
}

// awaitCalm waits, for two minutes at most, until five successive checks find no alert firing but
// those in before and the lasting ones. The next fault ignores alerts that still fire.
func (m *monitor) awaitCalm(ctx context.Context, before set) error {
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for quiet := 0; quiet < 5; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return nil
		case <-tick.C:
		}
		now, err := m.firing(ctx)
		if err != nil {
			return err
		}
		quiet++
		for name := range now {
			if !before[name] && !slices.Contains(lasting, name) {
				quiet = 0
			}
		}
	}
	return nil
}

// getJSON decodes the JSON that a GET of the URL answers. Any status but 200 is an error.
func getJSON(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// awaitURL waits until a URL answers 200, for a minute at most.
func awaitURL(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w", url, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// ports are reserved ports.
type ports []*local.Port

// reserve reserves n more ports, and returns their addresses.
func (p *ports) reserve(n int) (addresses []string, err error) {
	for range n {
		port, err := local.ReservePort()
		if err != nil {
			return nil, err
		}
		*p, addresses = append(*p, port), append(addresses, port.Address())
	}
	return addresses, nil
}

func (p ports) release() {
	for _, port := range p {
		_ = port.Close()
	}
}
