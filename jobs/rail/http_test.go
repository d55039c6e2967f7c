package rail_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
)

// newDebit returns a debit of 1.00 AUD.
func newDebit(key string) rail.Debit {
	return rail.Debit{Key: key, AgreementID: "agr", CustomerID: "cus", Amount: 100, Currency: "AUD"}
}

func wantStatus(t *testing.T, name string, got rail.Result, want rail.Status) {
	t.Helper()
	if got.Status != want {
		t.Errorf("%s: %v %s (%s), want %v", name, got.Status, got.Reason, got.Detail, want)
	}
}

// answering starts a gateway that gives every request the same answer, and returns its URL.
func answering(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// The adapter reads answers as the tables of the contract say, and every other answer as unknown.
func TestAnswersAreReadByTheContract(t *testing.T) {
	t.Parallel()
	const u, ok, held = rail.Unknown, rail.Succeeded, `"agreementId":"agr","amount":100,"currency":"AUD"`
	tests := []struct {
		status                int
		body                  string
		debit, lookup, cancel rail.Status
	}{
		{200, `{"key":"k","status":"succeeded",` + held + `}`, ok, ok, ok},
		{200, `{"key":"k","status":"succeeded",` + held + `,"more":[1]}`, ok, ok, ok},
		{200, `{"key":"k","status":"refused",` + held + `,"reason":"limitExceeded"}`, rail.Refused, rail.Refused,
			rail.Refused},
		{200, `{"key":"k","status":"refused",` + held + `}`, rail.Refused, rail.Refused, rail.Refused},
		{200, `{"key":"k","status":"cancelled",` + held + `}`, rail.Cancelled, rail.Cancelled, rail.Cancelled},
		{200, `{"key":"k","status":"cancelled"}`, rail.Cancelled, rail.Cancelled, rail.Cancelled},
		{202, `{"key":"k","status":"pending",` + held + `}`, u, u, u},
		{202, `{"key":"k","status":"pending"}`, u, u, u},
		{202, `{"key":"k","status":"succeeded",` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"pending",` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"notFound",` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"unavailable",` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"conflict",` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"invalid",` + held + `}`, u, u, u},

		// The answer to a debit may omit the particulars, others must have them. No answer may have
		// only some.
		{200, `{"key":"k","status":"succeeded"}`, ok, u, u},
		{200, `{"key":"k","status":"refused","reason":"limitExceeded"}`, rail.Refused, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":null,"amount":null,"currency":null}`, ok, u, u},
		{200, `{"key":"k","status":"succeeded","amount":100,"currency":"AUD"}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","currency":"AUD"}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":100}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":100,"currency":null}`, u, u, u},
		{200, `{"key":"k","status":"cancelled","agreementId":"agr"}`, u, u, u},
		{200, `{"key":"k","status":"refused","reason":"declined","amount":200}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"","amount":100,"currency":"AUD"}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":0,"currency":"AUD"}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":9007199254740992,"currency":"AUD"}`, u, u,
			u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":100.0,"currency":"AUD"}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":"100","currency":"AUD"}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":100,"currency":"aud"}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","Amount":100,"currency":"AUD"}`, u, u, u},

		// Particulars of another debit are a conflict for a debit. Look-up and cancellation report
		// them.
		{200, `{"key":"k","status":"succeeded","agreementId":"agr","amount":101,"currency":"AUD"}`,
			rail.Conflict, ok, ok},
		{200, `{"key":"k","status":"succeeded","agreementId":"agr2","amount":100,"currency":"AUD"}`,
			rail.Conflict, ok, ok},
		{200, `{"key":"k","status":"refused","agreementId":"agr","amount":100,"currency":"NZD"}`,
			rail.Conflict, rail.Refused, rail.Refused},
		{200, `{"key":"k","status":"cancelled","agreementId":"agr","amount":101,"currency":"AUD"}`,
			rail.Conflict, rail.Cancelled, rail.Cancelled},
		{202, `{"key":"k","status":"pending","agreementId":"agr","amount":101,"currency":"AUD"}`, rail.Conflict, u, u},
		{200, `{"key":"other","status":"succeeded","agreementId":"agr","amount":101,"currency":"AUD"}`, u, u, u},
		{200, `{"key":"k","status":"done","agreementId":"agr","amount":101,"currency":"AUD"}`, u, u, u},

		{200, `{"key":"other","status":"succeeded",` + held + `}`, u, u, u},
		{200, `{"status":"succeeded",` + held + `}`, u, u, u},
		{200, `{"key":"k","Status":"succeeded",` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","status":"refused",` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"succeeded","amount":100,` + held + `}`, u, u, u},
		{200, `{"key":"k","status":"succeeded",` + held, u, u, u},
		{200, `{"key":"k","status":"succeeded",` + held + `}{}`, u, u, u},
		{200, ``, u, u, u},
		{200, `null`, u, u, u},
		{200, `<html>`, u, u, u},
		{201, `{"key":"k","status":"succeeded",` + held + `}`, u, u, u},
		{204, ``, u, u, u},
		{302, `{"key":"k","status":"succeeded",` + held + `}`, u, u, u},
		{307, `{"key":"k","status":"succeeded",` + held + `}`, u, u, u},
		{400, `{"error":{"code":"invalidRequest"}}`, rail.Invalid, u, u},
		{400, `{"error":{"code":"keyConflict"}}`, u, u, u},
		{400, `bad request`, u, u, u},
		{401, `{"error":{"code":"invalidSignature"}}`, rail.Unavailable, u, u},
		{404, `{"error":{"code":"keyNotFound"}}`, u, rail.NotFound, u},
		{404, `404 page not found`, u, u, u},
		{409, `{"error":{"code":"keyConflict"}}`, rail.Conflict, u, u},
		{409, `{"error":{"code":"invalidRequest"}}`, u, u, u},
		{409, ``, u, u, u},
		{422, `{"error":{"code":"invalidRequest"}}`, u, u, u},
		{429, `{"error":{"code":"rateLimited"}}`, rail.Unavailable, u, u},
		{429, ``, u, u, u},
		{500, `{"error":{"code":"bankUnavailable"}}`, u, u, u},
		{502, ``, u, u, u},
		{503, `{"error":{"code":"bankUnavailable"}}`, rail.Unavailable, u, u},
		{503, `upstream connect error`, u, u, u},
		{504, `{"error":{"code":"outcomeUnknown"}}`, u, u, u},
		{200, `{"key":"k","status":"succeeded",` + held + `,"pad":"` + strings.Repeat("a", 64<<10) + `"}`, u, u, u},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %.60s", tt.status, tt.body), func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			h := client(t, answering(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}), nil)
			wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], tt.debit)
			wantStatus(t, "lookup", railtest.Lookup(t.Context(), t, h, "k")[0], tt.lookup)
			wantStatus(t, "cancel", railtest.Cancel(t.Context(), t, h, "k")[0], tt.cancel)
			if calls.Load() != 3 {
				t.Errorf("the gateway was called %d times, want 3", calls.Load())
			}
		})
	}
}

// Look-up and cancellation report the particulars of every answer that has them, also of a pending
// one.
func TestHeldIsReported(t *testing.T) {
	t.Parallel()
	other := rail.Particulars{AgreementID: "another", Amount: 7, Currency: "NZD"}
	for _, status := range []string{"succeeded", "refused", "cancelled", "pending"} {
		h := client(t, answering(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"key":"k","status":%q,"agreementId":"another","amount":7,"currency":"NZD"}`, status)
		}), nil)
		for call, got := range map[string]rail.Result{
			"lookup": railtest.Lookup(t.Context(), t, h, "k")[0], "cancel": railtest.Cancel(t.Context(), t, h, "k")[0],
		} {
			if got.Held != other || !got.Held.ConflictsWith(newDebit("k")) {
				t.Errorf("%s of a %s key: %+v, want it to hold %+v", call, status, got, other)
			}
		}
	}
}

// The gateway refuses a debit with a 400, before and after a debit that it carried out.
func TestInvalidOverTheWire(t *testing.T) {
	t.Parallel()
	behind := railtest.NewScripted()
	behind.Script("k", railtest.Invalid, railtest.LoseAnswer, railtest.Invalid)
	h := client(t, gateway(t, behind).URL, nil)
	wantStatus(t, "invalid", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Invalid)
	wantStatus(t, "not recorded", railtest.Lookup(t.Context(), t, h, "k")[0], rail.NotFound)
	wantStatus(t, "answer lost", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Unknown)
	wantStatus(t, "invalid", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Invalid)
	wantStatus(t, "the truth", railtest.Lookup(t.Context(), t, h, "k")[0], rail.Succeeded)
	wantStatus(t, "again", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Succeeded)
	if moved := behind.Moved(); len(moved) != 1 {
		t.Errorf("money moved %d times, want once", len(moved))
	}
}

// The requests of this test are invalid, so that the adapter would never send them.
func TestServerRefusesInvalidDebits(t *testing.T) {
	t.Parallel()
	behind := railtest.NewScripted()
	g := gateway(t, behind)
	for _, body := range []string{
		``, `[]`, `{"key":"k"}`, `{"key":"k","agreementId":"agr","amount":0,"currency":"AUD"}`,
		`{"key":"k","agreementId":"agr","amount":1e2,"currency":"AUD"}`,
		`{"key":"k","agreementId":"agr","amount":100,"currency":"aud"}`,
		`{"key":"k","amount":100,"currency":"AUD"}`, `{"key":"..","agreementId":"agr","amount":100,"currency":"AUD"}`,
		`{"key":"k","key":"k","agreementId":"agr","amount":100,"currency":"AUD"}`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/debits", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		signingKey.Sign(req, []byte(body), time.Now())
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), `"code":"invalidRequest"`) {
			t.Errorf("%s: HTTP %d %s", body, res.StatusCode, answer)
		}
	}
	if calls := behind.Calls("k"); calls != (railtest.Calls{}) {
		t.Errorf("the rail behind was called: %+v", calls)
	}
}

// Many concurrent calls stay within the bounds of requests and connections, and reuse the
// connections.
func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 4
	var running, highest, conns atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := running.Add(1)
		defer running.Add(-1)
		for seen := highest.Load(); now > seen && !highest.CompareAndSwap(seen, now); seen = highest.Load() {
		}
		var body struct{ Key string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		_, _ = fmt.Fprintf(w, `{"key":%q,"status":"succeeded"}`, body.Key)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	h := client(t, s.URL, func(c *rail.HTTPConfig) { c.Concurrency = bound })
	var debits []rail.Debit
	for i := range 100 {
		debits = append(debits, newDebit(fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for _, r := range railtest.Debit(t.Context(), t, h, debits...) {
				wantStatus(t, "debit", r, rail.Succeeded)
			}
		})
	}
	wg.Wait()
	if highest.Load() > bound || conns.Load() > bound {
		t.Errorf("%d requests at once on %d connections, want at most %d", highest.Load(), conns.Load(), bound)
	}
}

func TestContextEndsInFlight(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	h := client(t, answering(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}), func(c *rail.HTTPConfig) { c.Concurrency = 1 })
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-arrived
		cancel()
	}()
	got := railtest.Debit(ctx, t, h, newDebit("sent"), newDebit("waiting"))
	wantStatus(t, "sent", got[0], rail.Unknown)
	wantStatus(t, "waiting", got[1], rail.Unavailable)
}

func TestNewHTTPRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]rail.HTTPConfig{
		"plain http":  {BaseURL: "http://gateway.example", Key: signingKey},
		"no scheme":   {BaseURL: "gateway.example", Key: signingKey},
		"credentials": {BaseURL: "https://user:secret@gateway.example", Key: signingKey},
		"query":       {BaseURL: "https://gateway.example/?a=b", Key: signingKey},
		"no secret":   {BaseURL: "https://gateway.example", Key: rail.SigningKey{ID: "a"}},
		"bad key id":  {BaseURL: "https://gateway.example", Key: rail.SigningKey{ID: "a,b", Secret: []byte("s")}},
	} {
		if _, err := rail.NewHTTP(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestGatewayWithItsOwnAuthority(t *testing.T) {
	t.Parallel()
	s, err := rail.NewServer(rail.ServerConfig{
		Rail: railtest.NewScripted(), Keys: []rail.SigningKey{signingKey}, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewTLSServer(http.StripPrefix("", s))
	t.Cleanup(listener.Close)
	pool := listener.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	h := client(t, listener.URL, func(c *rail.HTTPConfig) {
		c.AllowPlainHTTP = false
		c.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	})
	wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Succeeded)
}

func TestWrongSignatures(t *testing.T) {
	t.Parallel()
	behind := railtest.NewScripted()
	g := gateway(t, behind)
	for name, change := range map[string]func(*rail.HTTPConfig){
		"other secret": func(c *rail.HTTPConfig) { c.Key.Secret = []byte("another") },
		"other key id": func(c *rail.HTTPConfig) { c.Key.ID = "test-2" },
		"clock behind": func(c *rail.HTTPConfig) { c.Now = clockAhead(-6 * time.Minute) },
		"clock ahead":  func(c *rail.HTTPConfig) { c.Now = clockAhead(6 * time.Minute) },
	} {
		h := client(t, g.URL, change)
		wantStatus(t, name, railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Unavailable)
		wantStatus(t, name, railtest.Lookup(t.Context(), t, h, "k")[0], rail.Unknown)
	}
	changes := map[string]func(*http.Request){
		"no header":   func(r *http.Request) { r.Header.Del("Rail-Signature") },
		"two headers": func(r *http.Request) { r.Header.Add("Rail-Signature", r.Header.Get("Rail-Signature")) },
		"method":      func(r *http.Request) { r.Method = http.MethodPut },
		"path":        func(r *http.Request) { r.URL.Path = "/debits/other" },
		"query":       func(r *http.Request) { r.URL.RawQuery = "a=b" },
		"body":        func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader([]byte(`{"seed":2}`))) },
	}
	for name, change := range changes {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/debits",
			strings.NewReader(`{"seed":1}`))
		if err != nil {
			t.Fatal(err)
		}
		signingKey.Sign(req, []byte(`{"seed":1}`), time.Now())
		change(req)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusBadRequest {
			t.Errorf("%s changed: %d", name, res.StatusCode)
		}
	}
	if calls := behind.Calls("k"); calls != (railtest.Calls{}) {
		t.Errorf("the rail behind was called: %+v", calls)
	}
}

// clockAhead returns a clock that is ahead of the wall clock.
func clockAhead(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(by) }
}

// An answer above 1 MiB is refused, and so is one for a caller with another key.
func TestListRefusesHugeAnswersAndStrangers(t *testing.T) {
	t.Parallel()
	huge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const page = `{"debits":[],"more":false,"completeFrom":0,"completeTo":1`
		_, _ = io.WriteString(w, page+strings.Repeat(" ", 1<<20)+"}")
	}))
	t.Cleanup(huge.Close)
	q := rail.ListQuery{To: 1, Limit: 1}
	if page, err := client(t, huge.URL, nil).List(t.Context(), q); err == nil {
		t.Errorf("a page %+v", page)
	}
	stranger := client(t, gateway(t, railtest.NewScripted()).URL, func(c *rail.HTTPConfig) {
		c.Key.Secret = []byte("another secret")
	})
	if page, err := stranger.List(t.Context(), q); err == nil || !strings.Contains(err.Error(), "invalidSignature") {
		t.Errorf("a page %+v, %v", page, err)
	}
}
