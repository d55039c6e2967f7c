package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/api/client"
)

// The client returns a 429 whose Retry-After exceeds MaxBackoff: a quota may stay exhausted.
func TestALongRetryAfterIsNotAwaited(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth2/token" {
			_, _ = w.Write([]byte(`{"access_token":"token","token_type":"Bearer","expires_in":3600}`))
			return
		}
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		_,
			_ = w.Write(
			[]byte(`{"errors":[{"code":"urn:svc:platform:billing:error:requests:quota-exceeded"}],"traceId":"t"}`))
	}))
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL, ClientID: "id", ClientSecret: "secret"})
	_, err := c.Customer(t.Context(), "site", "reference")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests || calls.Load() != 1 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// A proxy that drops the Prefer header does not make the client poll without a pause. What the last
// answer omits is not left over from earlier ones.
func TestAwaitIsPoliteWithoutPrefer(t *testing.T) {
	var calls []time.Time
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"token","token_type":"Bearer","expires_in":3600}`))
	})
	mux.HandleFunc("GET /billing/sites/site/batches/b", func(w http.ResponseWriter, _ *http.Request) {
		calls = append(calls, time.Now())
		state, row := client.StateInProgress, `{"rowReference":"r","nextAttemptAt":7}`
		if len(calls) == 3 {
			state, row = client.StateSettled, `{"rowReference":"r","outcome":"succeeded"}`
		} else if len(calls) == 2 {
			w.Header().Set("Retry-After", "2")
		}
		_, _ = w.Write([]byte(`{"data":{"state":"` + state + `","rows":[` + row + `]},"traceId":"t"}`))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c := client.New(client.Config{BaseURL: server.URL, ClientID: "id", ClientSecret: "secret"})
	batch, err := c.AwaitBatch(t.Context(), "site", "b")
	if err != nil || batch.State != client.StateSettled || len(calls) != 3 {
		t.Fatalf("%d calls, %+v, %v", len(calls), batch, err)
	}
	if row := batch.Rows[0]; row.Outcome != client.OutcomeSucceeded || row.NextAttemptAt != 0 {
		t.Errorf("row %+v", row)
	}
	if first, second := calls[1].Sub(calls[0]), calls[2].Sub(calls[1]); first < time.Second || second < 2*time.Second {
		t.Errorf("the pauses are %v and %v", first, second)
	}
}

// The access token goes to the service alone.
func TestDoStaysWithTheService(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("another server was called")
	}))
	defer other.Close()
	c, calls := newAPI(t, `{"data":{"a":1},"traceId":"t"}`)
	for _, path := range []string{other.URL + "/", "", "traces/1"} {
		if _, err := c.Do(t.Context(), client.Call{Method: http.MethodGet, Path: path}); err == nil {
			t.Errorf("%q was accepted", path)
		}
	}
	answer, err := c.Do(t.Context(), client.Call{Method: http.MethodGet, Path: client.Path("a b", "c/d")})
	if err != nil || string(answer.Data) != `{"a":1}` || answer.TraceID != "t" || calls.Load() != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
}

// service returns a client of a server whose answers to calls of the API, other than those for
// tokens, come from steps. The last step answers all further calls. Tokens are token-1, token-2 and
// so on. calls lists the calls.
func service(t *testing.T, cfg client.Config, steps ...http.HandlerFunc) (c *client.Client, calls func() []string) {
	t.Helper()
	var mu sync.Mutex
	var log []string
	issued := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/oauth2/token") {
			mu.Lock()
			defer mu.Unlock()
			issued++
			_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, issued)
			return
		}
		mu.Lock()
		step := steps[min(len(log), len(steps)-1)]
		log = append(log, fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(),
			strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
		mu.Unlock()
		step(w, r)
	}))
	t.Cleanup(server.Close)
	cfg.BaseURL = server.URL + cfg.BaseURL
	cfg.ClientID, cfg.ClientSecret = "id", "secret"
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = time.Millisecond
	}
	return client.New(cfg), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(log)
	}
}

// with returns a handler that answers with a status, headers and a body.
func with(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// lost ends the connection without an answer, torn in the middle of it.
func lost(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func torn(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte(`{"data":`))
}

const (
	found = `{"data":{"state":"linked"},"traceId":"t"}`
	// noAnswer is a part of the message of a *url.Error.
	noAnswer = `"http://127.0.0.1`
	denied   = `{"errors":[{"code":"urn:svc:platform:billing:error:x"}],"traceId":"t"}`
)

// Each call is made as often as its answers allow, and ends with the last answer.
func TestCallsAreRepeatedOnlyIfThatHelps(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, c *client.Client) error {
		_, err := c.Customer(ctx, "s", "r")
		return err
	}
	invite := func(ctx context.Context, c *client.Client) error {
		_, err := c.CreateInvitation(ctx, "s", client.NewInvitation{CustomerReference: "r"}, "")
		return err
	}
	cancel := func(ctx context.Context, c *client.Client) error {
		_, err := c.CancelPaymentIntent(ctx, "s", "pi_1")
		return err
	}
	remove := func(ctx context.Context, c *client.Client) error { return c.DeleteWebhookEndpoint(ctx, "default") }
	redeliver := func(ctx context.Context, c *client.Client) error {
		_, err := c.RedeliverWebhookEvent(ctx, "evt_1")
		return err
	}
	redeliverAll := func(ctx context.Context, c *client.Client) error {
		_, err := c.RedeliverWebhookEvents(ctx, client.WebhookEventFilter{Status: "failed"})
		return err
	}
	inFlight := with(http.StatusConflict, denied, "Retry-After", "1")
	for name, c := range map[string]struct {
		call   func(context.Context, *client.Client) error
		steps  []http.HandlerFunc
		calls  int
		status int    // of the *client.Error; 0: none
		text   string // of the error; "": success
		tokens string // of the calls; "": any
	}{
		"401 first": {read, []http.HandlerFunc{with(401, denied), with(200, found)}, 2, 0, "", "token-1 token-2"},
		"401 after a fault": {
			read, []http.HandlerFunc{with(503, denied), lost, with(401, denied), with(200, found)}, 4, 0, "",
			"token-1 token-1 token-1 token-2",
		},
		"401 with a new token": {read, []http.HandlerFunc{with(401, denied)}, 2, 401, "401", "token-1 token-2"},
		"401 of an act":        {cancel, []http.HandlerFunc{with(401, denied), with(200, found)}, 2, 0, "", "token-1 token-2"},
		"in flight":            {invite, []http.HandlerFunc{lost, inFlight, inFlight, with(201, found)}, 4, 0, "", ""},
		"in flight for long":   {invite, []http.HandlerFunc{inFlight}, 4, 409, "409", ""},
		"a conflict":           {invite, []http.HandlerFunc{with(409, denied)}, 1, 409, "409", ""},
		"409 without a key":    {cancel, []http.HandlerFunc{inFlight}, 1, 409, "409", ""},
		"a lost read":          {read, []http.HandlerFunc{lost, torn, with(200, found)}, 3, 0, "", ""},
		"a torn read":          {read, []http.HandlerFunc{torn}, 4, 0, "unexpected EOF", ""},
		"a lost act":           {cancel, []http.HandlerFunc{lost}, 1, 0, noAnswer, ""},
		"a lost deletion":      {remove, []http.HandlerFunc{lost}, 1, 0, noAnswer, ""},
		"a failed deletion":    {remove, []http.HandlerFunc{with(503, denied)}, 1, 503, "503", ""},
		"a lost redelivery":    {redeliver, []http.HandlerFunc{lost}, 1, 0, noAnswer, ""},
		"lost redeliveries":    {redeliverAll, []http.HandlerFunc{lost}, 1, 0, noAnswer, ""},
		"a redirect":           {read, []http.HandlerFunc{with(302, "", "Location", "/other")}, 1, 302, "302 Found", ""},
		"a redirected act":     {cancel, []http.HandlerFunc{with(307, "", "Location", "/other")}, 1, 307, "307", ""},
		"no data":              {read, []http.HandlerFunc{with(200, `{"traceId":"t"}`)}, 1, 0, "no data", ""},
		"null":                 {read, []http.HandlerFunc{with(200, `{"data":null}`)}, 1, 0, "no data", ""},
		"a deletion":           {remove, []http.HandlerFunc{with(200, `{"data":{},"traceId":"t"}`)}, 1, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, calls := service(t, client.Config{MaxRetries: 3}, c.steps...)
			err := c.call(t.Context(), api)
			log := calls()
			var refused *client.Error
			status := 0
			if errors.As(err, &refused) {
				status = refused.Status
			}
			if len(log) != c.calls || status != c.status || (err == nil) != (c.text == "") ||
				err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%d calls, %v", len(log), err)
			}
			var tokens []string
			for _, line := range log {
				tokens = append(tokens, line[strings.LastIndexByte(line, ' ')+1:])
			}
			if got := strings.Join(tokens, " "); c.tokens != "" && got != c.tokens {
				t.Errorf("the tokens are %s, want %s", got, c.tokens)
			}
			var transport *url.Error
			if lost := c.text == noAnswer || c.text == "unexpected EOF"; lost != errors.As(err, &transport) {
				t.Errorf("%#v", err)
			}
		})
	}
}

// Credentials that are not accepted are tried once.
func TestRefusedCredentialsAreNotRetried(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 400, 401, 404} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			w.Header().Set("Location", "/other")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`<html>`))
		}))
		defer server.Close()
		_, err := client.New(client.Config{BaseURL: server.URL}).Customer(t.Context(), "s", "r")
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Status != status || calls.Load() != 1 {
			t.Errorf("%d: %d calls, %v", status, calls.Load(), err)
		}
	}
}

// The client follows the links of pages at its own base URL.
func TestPagesStayWithTheService(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("another server was called")
	}))
	defer other.Close()
	const items = `{"data":{"items":[{"customerReference":"a"}],"nextHref":%q},"traceId":"t"}`
	for name, c := range map[string]struct{ base, href, second string }{
		"another server": {"", other.URL + "/x/y%2Fz?cursor=c%3D", "GET /x/y%2Fz?cursor=c%3D token-1"},
		"a path":         {"", "/x?cursor=c", "GET /x?cursor=c token-1"},
		"a base with a path": {
			"/gateway", "https://service.example/gateway/x?cursor=c", "GET /gateway/x?cursor=c token-1",
		},
		"a path that only begins like the base": {
			"/x", "https://service.example/xy?cursor=c", "GET /x/xy?cursor=c token-1",
		},
		"no path":   {"", "mailto:x", ""},
		"not a URL": {"", "http://[", ""},
	} {
		api, calls := service(t, client.Config{BaseURL: c.base},
			with(200, fmt.Sprintf(items, c.href)),
			with(200, `{"data":{"items":[{"customerReference":"b"}]},"traceId":"t"}`))
		n, failed := 0, false
		for _, err := range api.Customers(t.Context(), "s", client.CustomerFilter{}) {
			n++
			failed = failed || err != nil
		}
		if failed != (c.second == "") || n != 2 {
			t.Errorf("%s: %d items, failed %v", name, n, failed)
		}
		if log := calls(); c.second != "" && (len(log) != 2 || log[1] != c.second) {
			t.Errorf("%s: %q", name, log)
		}
	}
}

// A watched batch is read again only after it has changed.
func TestWatchAsksForChanges(t *testing.T) {
	t.Parallel()
	var asked []string
	api, _ := service(t, client.Config{}, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("If-None-Match")+" "+r.Header.Get("Prefer"))
		state := client.StateInProgress
		switch len(asked) {
		case 2:
			w.Header().Set("ETag", `W/"1"`)
			w.WriteHeader(http.StatusNotModified)
			return
		case 3:
			state = client.StateSettled
		}
		w.Header().Set("ETag", fmt.Sprintf(`W/"%d"`, len(asked)))
		_, _ = w.Write([]byte(`{"data":{"state":"` + state + `"},"traceId":"t"}`))
	})
	var states []string
	for batch, err := range api.WatchBatch(t.Context(), "s", "b") {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, batch.State)
	}
	want := []string{" ", `W/"1" wait=20`, `W/"1" wait=20`}
	if !slices.Equal(states, []string{client.StateInProgress, client.StateSettled}) || !slices.Equal(asked, want) {
		t.Errorf("states %q, asked %q", states, asked)
	}
}

// The time for which the service is asked to hold its answer fits the client's time-out.
func TestAwaitFitsTheTimeout(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]string{
		0: "wait=20", time.Minute: "wait=20", 11 * time.Second: "wait=5", 1500 * time.Millisecond: "",
	} {
		var asked string
		api, _ := service(t, client.Config{HTTP: &http.Client{Timeout: timeout}},
			func(w http.ResponseWriter, r *http.Request) {
				asked = r.Header.Get("Prefer")
				_, _ = w.Write([]byte(`{"data":{"state":"settled"},"traceId":"t"}`))
			})
		if _, err := api.AwaitBatch(t.Context(), "s", "b"); err != nil || asked != want {
			t.Errorf("%v: asked %q, %v", timeout, asked, err)
		}
	}
}

// New leaves the caller's HTTP client as it was.
func TestNewCopiesTheHTTPClient(t *testing.T) {
	t.Parallel()
	own := &http.Client{}
	client.New(client.Config{HTTP: own})
	if own.CheckRedirect != nil {
		t.Error("CheckRedirect was set")
	}
}
