package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A threshold is lowered as a whole, or not at all.
func TestLower(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"a > 60":                 "a > 8",
		"a > 60 or b > 120":      "a > 8 or b > 8",
		"(a > 1800)":             "(a > 15)",
		"a > 600":                "a > 600",
		"a > 60.5":               "a > 60.5",
		"a > 60 * 60":            "a > 60 * 60",
		"a > bool 60":            "a > bool 60",
		"a > 256 * 1024 * 1024":  "a > 1024 * 1024",
		"a > 9256 * 1024 * 1024": "a > 9256 * 1024 * 1024",
	} {
		if got := lower(expr); got != want {
			t.Errorf("%s became %s, want %s", expr, got, want)
		}
	}
}

// A fleet whose binary is missing still stops.
func TestKillAfterAFailedLaunch(t *testing.T) {
	t.Parallel()
	f := &fleet{binary: "/does/not/exist", dir: t.TempDir(), processes: map[string]*exec.Cmd{}}
	if err := f.launch("api"); err == nil {
		t.Error("a missing binary was launched")
	}
	f.kill("api")
}

// Alerts that have been read stay as they are while Alertmanager sends more.
func TestNotified(t *testing.T) {
	t.Parallel()
	var n notified
	n.reset()
	send := func(receiver, alert, status string) {
		body := fmt.Sprintf(`{"alerts":[{"status":%q,"labels":{"alertname":%q}}]}`, status, alert)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+receiver, strings.NewReader(body))
		n.ServeHTTP(httptest.NewRecorder(), request)
	}
	send("pager", "SvcApiAbsent", "firing")
	send("pager", "SvcApiSlow", "resolved")
	send("tickets", "SvcRestarting", "firing")
	pages, tickets := n.seen()
	send("pager", "SvcRedisRefuses", "firing")
	if got := pages.names(); !slices.Equal(got, []string{"SvcApiAbsent"}) {
		t.Errorf("pages %q", got)
	}
	if got := tickets.names(); !slices.Equal(got, []string{"SvcRestarting"}) {
		t.Errorf("tickets %q", got)
	}
	n.reset()
	if pages, tickets := n.seen(); len(pages)+len(tickets) > 0 {
		t.Errorf("after a reset: pages %q, tickets %q", pages.names(), tickets.names())
	}
}
