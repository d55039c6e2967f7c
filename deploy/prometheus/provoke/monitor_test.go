package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

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
