package rail_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

func TestSandboxConforms(t *testing.T) {
	railtest.Run(t, sandbox)
}

func TestHTTPConforms(t *testing.T) {
	railtest.Run(t, func(t *testing.T) railtest.Fixture {
		f := sandbox(t)
		f.Rail = client(t, gateway(t, f.Rail).URL, func(c *rail.HTTPConfig) { c.Limiter = threeAtATime{} })
		return f
	})
}

// threeAtATime is a limiter that admits at most three requests at once, and lets other goroutines
// run first.
type threeAtATime struct{ rail.Unlimited }

func (l threeAtATime) Take(ctx context.Context, organisation models.OrganisationID, n int) int {
	runtime.Gosched()
	return l.Unlimited.Take(ctx, organisation, min(n, 3))
}

// sandbox returns a sandbox rail with its own database and clock.
func sandbox(t *testing.T) railtest.Fixture {
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, 1_700_000_000_000) // it stands still
	return railtest.Fixture{
		Rail: rail.NewSandbox(store),
		Open: func(t railtest.TB, agreementID string, b models.Behaviour) {
			if err := store.OpenSandboxAccount(t.Context(), agreementID, b); err != nil {
				t.Fatalf("open account: %v", err)
			}
		},
		Advance: func(t railtest.TB, by time.Duration) {
			if _, err := store.AdvanceClock(t.Context(), by); err != nil {
				t.Fatalf("advance the clock: %v", err)
			}
		},
		Debited: func(t railtest.TB) map[string]models.Amount { return debited(t, store) },
		Complete: func(t railtest.TB) {
			if _, err := store.AdvanceClock(t.Context(), models.SandboxListDelay+time.Millisecond); err != nil {
				t.Fatalf("advance the clock: %v", err)
			}
		},
	}
}

// debited returns the amounts of all debits that succeeded, by key. It reads the sandbox's list
// page by page.
func debited(t railtest.TB, store *models.Store) map[string]models.Amount {
	got := make(map[string]models.Amount)
	for after := ""; ; {
		page, err := store.SandboxDebits(t.Context(), after, 100)
		if err != nil {
			t.Fatalf("list debits: %v", err)
		}
		if len(page) == 0 {
			return got
		}
		for _, d := range page {
			if d.Status == models.SandboxSucceeded {
				got[d.Key] += d.Amount
			}
		}
		after = page[len(page)-1].Key
	}
}

// quiet discards log lines.
var quiet = slog.New(slog.DiscardHandler)

var signingKey = rail.SigningKey{ID: "test-1", Secret: []byte("a secret of the tests")}

// server is a payment gateway in front of a rail.
type server struct {
	*rail.Server
	URL string
}

func gateway(t *testing.T, behind rail.Rail) server {
	t.Helper()
	s, err := rail.NewServer(rail.ServerConfig{Rail: behind, Keys: []rail.SigningKey{signingKey}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	return server{s, listener.URL}
}

// client returns an adapter to the gateway at a URL. change may change its configuration. Without
// change, no time-out ends an exchange, even on a loaded machine.
func client(t *testing.T, url string, change func(*rail.HTTPConfig)) *rail.HTTP {
	t.Helper()
	cfg := rail.HTTPConfig{BaseURL: url, AllowPlainHTTP: true, Key: signingKey, Timeout: 5 * time.Minute}
	if change != nil {
		change(&cfg)
	}
	h, err := rail.NewHTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}
