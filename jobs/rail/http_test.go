package rail_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"partnerbilling/deploy/local"
	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
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

func TestServerFaults(t *testing.T) {
	t.Parallel()
	const hangTooLong = "hang too long"
	once := rail.Fault{Count: 1}
	tests := []struct {
		name   string
		faults rail.Faults
		answer rail.Status // to the debit with the fault
		truth  rail.Status // of a look-up afterwards
	}{
		{"none", rail.Faults{}, rail.Succeeded, rail.Succeeded},
		{"delay", rail.Faults{Delay: once, DelayMillis: 1}, rail.Succeeded, rail.Succeeded},
		{"lose request", rail.Faults{LoseRequest: once}, rail.Unknown, rail.NotFound},
		{"unavailable", rail.Faults{Unavailable: once}, rail.Unavailable, rail.NotFound},
		{"hang", rail.Faults{Hang: once, HangMillis: 1}, rail.Unknown, rail.Succeeded},
		{hangTooLong, rail.Faults{Hang: once}, rail.Unknown, rail.Succeeded},
		{"lose answer", rail.Faults{LoseAnswer: once}, rail.Unknown, rail.Succeeded},
		{"cut answer", rail.Faults{CutAnswer: once}, rail.Unknown, rail.Succeeded},
		{"garbage", rail.Faults{Garbage: once}, rail.Unknown, rail.Succeeded},
		{"internal failure", rail.Faults{InternalFail: once}, rail.Unknown, rail.Succeeded},
		{"other operation", rail.Faults{LoseAnswer: once, Only: []string{"cancel"}}, rail.Succeeded, rail.Succeeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			behind := railtest.NewScripted()
			g := gateway(t, behind)
			h := client(t, g.URL, func(c *rail.HTTPConfig) {
				if tt.name == hangTooLong {
					c.Timeout = 2 * time.Second
				}
			})
			if err := g.SetFaults(tt.faults); err != nil {
				t.Fatal(err)
			}
			wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], tt.answer)
			if err := g.SetFaults(rail.Faults{}); err != nil {
				t.Fatal(err)
			}
			patient := client(t, g.URL, nil)
			wantStatus(t, "lookup", railtest.Lookup(t.Context(), t, patient, "k")[0], tt.truth)
			wantStatus(t, "again", railtest.Debit(t.Context(), t, patient, newDebit("k"))[0], rail.Succeeded)
			if moved := behind.Moved(); len(moved) != 1 {
				t.Errorf("money moved %d times, want once", len(moved))
			}
		})
	}
}

// The same seed draws the same faults.
func TestFaultsAreSeeded(t *testing.T) {
	t.Parallel()
	g := gateway(t, railtest.NewScripted())
	h := client(t, g.URL, nil)
	run := func(seed uint64) string {
		if err := g.SetFaults(rail.Faults{Seed: seed, Unavailable: rail.Fault{Probability: 0.5}}); err != nil {
			t.Fatal(err)
		}
		var drawn strings.Builder
		for i := range 40 {
			fmt.Fprintf(&drawn, "%d", railtest.Debit(t.Context(), t, h, newDebit(fmt.Sprint(seed, i)))[0].Status)
		}
		return drawn.String()
	}
	first, again, other := run(1), run(1), run(2)
	if first != again {
		t.Errorf("seed 1 drew %s, then %s", first, again)
	}
	if first == other {
		t.Errorf("seeds 1 and 2 both drew %s", first)
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	t.Parallel()
	g := gateway(t, railtest.NewScripted())
	call := func(method, body string, sign bool) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, g.URL+"/faults", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if sign {
			signingKey.Sign(req, []byte(body), time.Now())
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		answer, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(answer)
	}
	for _, tt := range []struct {
		body string
		sign bool
		want int
	}{
		{`{"seed":7,"unavailable":{"count":2},"only":["debit"]}`, true, 200},
		{`{}`, false, 401},
		{`{"typo":1}`, true, 400},
		{`{"delay":{"probability":1.5}}`, true, 400},
		{`{"delay":{"count":-1}}`, true, 400},
		{`{"only":["refund"]}`, true, 400},
		{`{"hangMillis":-1}`, true, 400},
		{`[]`, true, 400},
	} {
		if status, answer := call("PUT", tt.body, tt.sign); status != tt.want {
			t.Errorf("PUT %s: %d %s, want %d", tt.body, status, answer, tt.want)
		}
	}
	h := client(t, g.URL, nil)
	wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Unavailable)
	if _, answer := call("GET", "", true); answer != `{"seed":7,"only":["debit"],"unavailable":{"count":1}}` {
		t.Errorf("GET: %s", answer)
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

// A failure before a request is sent certainly debits nothing.
func TestFailuresBeforeSending(t *testing.T) {
	t.Parallel()
	closed, err := local.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closed.Close() })
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, url := range map[string]string{
		"refused":         "http://" + closed.Address(),
		"no such host":    "http://gateway.invalid",
		"bad certificate": secure.URL,
		"not a port":      "http://127.0.0.1:0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := client(t, url, nil)
			wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Unavailable)
			wantStatus(t, "lookup", railtest.Lookup(t.Context(), t, h, "k")[0], rail.Unknown)
			wantStatus(t, "cancel", railtest.Cancel(t.Context(), t, h, "k")[0], rail.Unknown)
		})
	}
}

// rawGateway starts a server that lets speak handle each connection, and returns its URL.
func rawGateway(t *testing.T, speak func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				speak(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return "http://" + listener.Addr().String()
}

// A failure after a request may have been sent may have debited.
func TestFailuresAfterSending(t *testing.T) {
	t.Parallel()
	const silent, trickling = "silent until time-out", "trickling" // only the time-out ends these
	readByte := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }
	readAll := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 64<<10)) }
	say := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			readAll(conn)
			_, _ = io.WriteString(conn, text)
		}
	}
	for name, speak := range map[string]func(net.Conn){
		"closed at once":        func(net.Conn) {},
		"closed after a byte":   readByte,
		"closed without answer": readAll,
		"no HTTP":               say("hello\r\n\r\n"),
		"headers cut":           say("HTTP/1.1 200 OK\r\nContent-"),
		"body cut": say(
			"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"key\":\"k\",\"status\":\"succeeded\"}"),
		"chunks cut": say(
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{\"key\":\"k\",\"status\":\"succeeded\"}\r\n"),
		"switching protocols": say("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
		silent:                func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		trickling: func(conn net.Conn) {
			readAll(conn)
			for {
				if _, err := io.WriteString(conn, "H"); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := client(t, rawGateway(t, speak), func(c *rail.HTTPConfig) {
				if name == silent || name == trickling {
					c.Timeout = 2 * time.Second
				}
			})
			wantStatus(t, "debit", railtest.Debit(t.Context(), t, h, newDebit("k"))[0], rail.Unknown)
		})
	}
}

// The transport sends a request again because a kept connection is closed. An answer of "nothing
// was debited" then says nothing about the first sending.
func TestSecondSending(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{\"key\":\"a\",\"status\":\"succeeded\"}"
	failing := func(status int, code string) string {
		body := fmt.Sprintf(`{"error":{"code":%q}}`, code)
		return fmt.Sprintf("HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
	for name, tt := range map[string]struct {
		second string
		want   rail.Status
	}{
		"unavailable": {failing(503, "bankUnavailable"), rail.Unknown},
		"invalid":     {failing(400, "invalidRequest"), rail.Unknown},
		"conflict":    {failing(409, "keyConflict"), rail.Conflict}, // the first sending was the same debit
		"final":       {strings.Replace(ok, `"a"`, `"b"`, 1), rail.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conns atomic.Int64
			h := client(t, rawGateway(t, func(conn net.Conn) {
				read := func() { _, _ = conn.Read(make([]byte, 64<<10)) }
				read()
				if conns.Add(1) == 1 {
					_, _ = io.WriteString(conn, ok)
					read() // the second request, after which the connection closes
					return
				}
				_, _ = io.WriteString(conn, tt.second)
			}), nil)
			wantStatus(t, "first", railtest.Debit(t.Context(), t, h, newDebit("a"))[0], rail.Succeeded)
			wantStatus(t, "second", railtest.Debit(t.Context(), t, h, newDebit("b"))[0], tt.want)
			if conns.Load() != 2 {
				t.Errorf("%d connections, want 2", conns.Load())
			}
		})
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

// Without a whole and readable answer there is no page. The list behind is untouched.
func TestListThroughFaults(t *testing.T) {
	t.Parallel()
	once := rail.Fault{Count: 1}
	q := rail.ListQuery{To: 4_000_000_000_000, Limit: 10}
	for name, faults := range map[string]rail.Faults{
		"lose request":     {LoseRequest: rail.Fault{Count: 3}}, // the transport sends again
		"unavailable":      {Unavailable: once},
		"lose answer":      {LoseAnswer: rail.Fault{Count: 3}},
		"cut answer":       {CutAnswer: once},
		"garbage":          {Garbage: once},
		"internal failure": {InternalFail: once},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behind := railtest.NewScripted()
			g := gateway(t, behind)
			h := client(t, g.URL, nil)
			railtest.Debit(t.Context(), t, h, newDebit("k"))
			behind.SetClock(func() models.Millis { return q.To })
			faults.Only = []string{"list"}
			if err := g.SetFaults(faults); err != nil {
				t.Fatal(err)
			}
			if page, err := h.List(t.Context(), q); err == nil {
				t.Errorf("a page %+v", page)
			}
			if err := g.SetFaults(rail.Faults{}); err != nil {
				t.Fatal(err)
			}
			if page := railtest.List(t.Context(), t, h, q); len(page.Debits) != 1 || page.Debits[0].Key != "k" {
				t.Errorf("the page is %+v", page)
			}
		})
	}
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
