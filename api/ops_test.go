package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api"
)

// With a separate ops listener, the API's listener answers the ops paths with 404.
func TestSeparateOpsListener(t *testing.T) {
	t.Parallel()
	b := newBilling(t, func(cfg *api.Config) { cfg.SeparateOpsListener = true })
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		b.Get(path).Refused(404, "requests:not-found")
		b.Post(path, nil).Refused(404, "requests:not-found")
	}
	b.Get("/openapi.json").Expect(200)
	down := errors.New("down")
	checks := []api.ReadinessCheck{
		{Name: "postgres", Required: true, Check: func(context.Context) error { return nil }},
		{Name: "redis", Check: func(context.Context) error { return down }},
	}
	registry := prometheus.NewRegistry()
	api.RegisterDependencies(registry, checks)
	ops := httptest.NewServer(api.OpsHandler(checks, registry, slog.New(slog.DiscardHandler)))
	defer ops.Close()
	for path, want := range map[string]string{
		"/livez":   `{"data":{"status":"live"}`,
		"/readyz":  `{"data":{"status":"ready","checks":{"postgres":"ok","redis":"unavailable"}}`,
		"/metrics": "svc_dependency_up{dependency=\"redis\"} 0",
	} {
		status, header, body := get(t, ops.URL+path)
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
		isJSON := strings.HasPrefix(body, "{")
		if isJSON && (header.Get("Content-Type") != api.ContentTypeJSON || header.Get("Cache-Control") != "no-store" ||
			header.Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s: %v", path, header)
		}
	}
	if status, _, _ := get(t, ops.URL+"/docs"); status != 404 {
		t.Errorf("/docs: %d", status)
	}
}

func get(t *testing.T, url string) (status int, header http.Header, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(content)
}

// Concurrent calls run a check once, and a cancelled caller does not cancel it for the others.
func TestChecksAreCached(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	begun, proceed := make(chan struct{}), make(chan struct{})
	down := errors.New("down")
	checks := api.CacheChecks([]api.ReadinessCheck{{Name: "postgres", Required: true,
		Check: func(ctx context.Context) error {
			if ran.Add(1) == 1 {
				close(begun)
			}
			<-proceed
			return errors.Join(down, ctx.Err())
		}}})
	first, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = checks[0].Check(first) })
	<-begun
	cancel() // the first caller gives up
	for range 50 {
		wg.Go(func() {
			if err := checks[0].Check(t.Context()); !errors.Is(err, down) || errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	close(proceed)
	wg.Wait()
	if n := ran.Load(); n != 1 {
		t.Errorf("the check ran %d times", n)
	}
}
