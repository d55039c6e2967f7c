package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"partnerbilling/deploy/local/localtest"
)

// A webhook counts as sent once a connection is open, with TLS where the target asks for it.
func TestSendTellsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			err = connection.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(silent.Close)
	for name, tt := range map[string]struct {
		target      string
		unreachable bool
	}{
		"answered with nothing":  {silent.URL, false},
		"not listening":          {"http://" + localtest.FreeAddress(t), true},
		"no TLS behind https":    {strings.Replace(silent.URL, "http:", "https:", 1), true},
		"a host that is unknown": {"http://host.invalid", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := send(t.Context(), newWebhookSender(), tt.target, http.Header{}, []byte("{}"))
			if sent.err == nil || sent.unreachable != tt.unreachable {
				t.Errorf("unreachable %t, want %t: %v", sent.unreachable, tt.unreachable, sent.err)
			}
		})
	}
}
