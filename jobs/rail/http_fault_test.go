package rail_test

import (
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

	"partnerbilling/deploy/local/localtest"
	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
)

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

// A failure before a request is sent certainly debits nothing.
func TestFailuresBeforeSending(t *testing.T) {
	t.Parallel()
	closed := localtest.FreeAddress(t)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, url := range map[string]string{
		"refused":         "http://" + closed,
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
