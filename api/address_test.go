package api_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"

	"partnerbilling/api"
	"partnerbilling/api/peer"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// syncBuffer is a buffer for concurrent writers.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// The log, the audit log and mounted handlers name the same client: the peer, or behind a trusted
// proxy the address that the proxy reports.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		trusted []string
		want    string
	}{
		"no proxy":        {nil, "127.0.0.1"},
		"a trusted proxy": {[]string{"127.0.0.0/8"}, "198.51.100.7"},
	} {
		var log syncBuffer
		proxies, err := peer.ParseProxies(tt.trusted)
		check(t, err)
		b := newBilling(t, func(cfg *api.Config) {
			cfg.Proxies, cfg.Log = proxies, slog.New(slog.NewTextHandler(&log, nil))
			cfg.Mounts = []api.Mount{{Path: "/ops/echo", Handler: func(c *fiber.Ctx) error {
				return c.SendString(c.Context().RemoteAddr().String())
			}}}
		})
		modelstest.Invite(t, b.store, b.site, "ada")
		client := b.With("X-Forwarded-For", "203.0.113.9, 198.51.100.7")
		client.Post(b.customer("ada", "/revocation"), nil).Expect(http.StatusOK)
		entries, err := b.store.AuditLog(t.Context(), models.AuditFilter{}, models.AuditPosition{}, 10)
		if err != nil || len(entries) != 1 || entries[0].Origin != tt.want {
			t.Errorf("%s: audit log %+v, %v", name, entries, err)
		}
		if !strings.Contains(log.String(), "address="+tt.want+"\n") {
			t.Errorf("%s: log %s", name, log.String())
		}
		const echo = "GET /ops/echo HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.9, 198.51.100.7\r\n\r\n"
		answer := client.RawUnchecked(echo, 1)[0]
		if !strings.HasPrefix(string(answer.Body), tt.want+":") {
			t.Errorf("%s: a mount sees %s", name, answer.Body)
		}
	}
}
