package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"

	"partnerbilling/api/apitest"
	"partnerbilling/models/modelstest"
)

// A client with an idle connection to an API that gets SIGTERM can still send a request on it.
func TestStoppingAPIAnswersIdleConnections(t *testing.T) {
	t.Parallel()
	f := newFleet(t, modelstest.DSN(t))
	f.startAPI()
	caller := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: awaitTimeout}
	get := func() *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.apiURL+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := caller.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response
	}
	if get().Close {
		t.Error("the first answer closes its connection")
	}
	if err := f.apiProcess.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	apitest.AwaitNoListener(t, f.apiURL)
	if !get().Close {
		t.Error("the answer of a stopping API does not close its connection")
	}
	if code := f.apiProcess.wait(awaitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A stopping HTTP server finishes its open requests before the service closes its stores, and
// closes those that take longer than SVC_SHUTDOWN_WITHIN.
func TestStoppingServersFinishOpenRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		within   time.Duration
		finished bool // before the closers run
	}{{"in time", time.Minute, true}, {"too late", time.Millisecond, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &service{cfg: Config{ShutdownWithin: tt.within}, log: slog.New(slog.DiscardHandler)}
				ctx, stop := context.WithCancel(t.Context())
				handled, before := make(chan struct{}), false
				ln := fasthttputil.NewInmemoryListener()
				s.addHTTP(ln, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					defer close(handled)
					stop()
					<-time.After(time.Second)
				}))
				s.closers = append(s.closers, func() error {
					select {
					case <-handled:
						before = true
					default:
					}
					return nil
				})
				ended := make(chan error)
				go func() { ended <- s.run(ctx) }()
				caller := &http.Client{Transport: &http.Transport{
					DialContext:       func(context.Context, string, string) (net.Conn, error) { return ln.Dial() },
					DisableKeepAlives: true,
				}}
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://svc/", nil)
				must(t, err)
				response, err := caller.Do(request)
				if (err == nil) != tt.finished {
					t.Errorf("answer %v", err)
				}
				if err == nil {
					must(t, response.Body.Close())
				}
				must(t, <-ended)
				if before != tt.finished {
					t.Errorf("the request finished before the stores closed: %v", before)
				}
				<-handled
			})
		})
	}
}
