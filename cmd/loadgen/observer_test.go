package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A request without an answer before the client's time-out is a breach, unless the caller has
// cancelled the request.
func TestHangingRequestsAreBreaches(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
		}
	}))
	t.Cleanup(server.Close)
	observed, recorded := &observer{next: http.DefaultTransport}, newSoakRecorder(http.DefaultTransport)
	for name, tt := range map[string]struct {
		transport http.RoundTripper
		broken    func() []string
	}{
		"observer": {observed, func() []string { _, broken := observed.seen(); return broken }},
		"recorder": {recorded, recorded.breaches},
	} {
		send := func(ctx context.Context, timeout time.Duration) {
			req, err := http.NewRequestWithContext(withKind(ctx, "kind"), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&http.Client{Transport: tt.transport, Timeout: timeout}).Do(req)
			if err == nil {
				_ = resp.Body.Close()
				t.Errorf("%s: a hanging request was answered", name)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		send(ctx, time.Minute)
		if broken := tt.broken(); len(broken) != 0 {
			t.Errorf("%s: breaches %q after a cancelled request", name, broken)
		}
		send(t.Context(), 20*time.Millisecond)
		if broken := tt.broken(); len(broken) == 0 {
			t.Errorf("%s: a hanging request is no breach", name)
		}
	}
}
