package webhook_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is the time-out of senders under test: long enough for answers on a busy machine, short
// enough to wait for.
const timeout = 2 * time.Second

func newSender(t testing.TB, change func(*webhook.Config)) *webhook.Sender {
	t.Helper()
	cfg := webhook.Config{Targets: models.WebhookTargets{Sandbox: true, Loopback: true}, Timeout: timeout}
	if change != nil {
		change(&cfg)
	}
	s := webhook.NewSender(cfg)
	t.Cleanup(s.Close)
	return s
}

var secrets = func() models.WebhookSecrets {
	s := models.NewWebhookSecret()
	return models.WebhookSecrets{Current: s, Live: []models.WebhookSecret{s}}
}()

func message(url string) webhook.Message {
	event := &models.WebhookEvent{
		ID: models.NewWebhookEventID(), Type: models.EventBatchSettled,
		Body: []byte(`{"data":{"a":"<>& 🧾` + "\u2028" + `","n":9007199254740991},"traceId":"0"}`),
	}
	return webhook.Message{URL: url, Event: event, Attempt: 3, Secrets: secrets}
}

// rawServer starts a server with a handler for raw connections, and returns its URL. A connection
// is closed when the handler returns.
func rawServer(t testing.TB, handle func(ctx context.Context, c net.Conn, r *http.Request)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer stop()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				handle(ctx, c, r)
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = ln.Close(); running.Wait() })
	return "http://" + ln.Addr().String()
}

// answer returns a handler that writes text.
func answer(text string) func(context.Context, net.Conn, *http.Request) {
	return func(_ context.Context, c net.Conn, _ *http.Request) { _, _ = io.WriteString(c, text) }
}

// trickle returns a handler that writes text, and then one byte at a time until the client
// disconnects.
func trickle(text string) func(context.Context, net.Conn, *http.Request) {
	return func(ctx context.Context, c net.Conn, _ *http.Request) {
		_, err := io.WriteString(c, text)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for err == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, err = io.WriteString(c, "x")
			}
		}
	}
}

func TestReceivers(t *testing.T) {
	t.Parallel()
	compressedZeros()
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "this is the body")
		}
	}
	longHeader := "X: " + strings.Repeat("y", 1000) + "\r\n"
	type outcome struct {
		status  int
		failure string
	}
	for name, c := range map[string]struct {
		http http.HandlerFunc
		raw  func(context.Context, net.Conn, *http.Request)
		want outcome
	}{
		"200":                 {http: status(200), want: outcome{200, ""}},
		"204":                 {http: status(204), want: outcome{204, ""}},
		"299":                 {http: status(299), want: outcome{299, ""}},
		"301 is not followed": {http: status(301, "Location", "/elsewhere"), want: outcome{301, "answered 301"}},
		"307 is not followed": {http: status(307, "Location", "/elsewhere"), want: outcome{307, "answered 307"}},
		"400":                 {http: status(400), want: outcome{400, "answered 400"}},
		"410":                 {http: status(410), want: outcome{410, "answered 410"}},
		"429":                 {http: status(429, "Retry-After", "7"), want: outcome{429, "answered 429"}},
		"500":                 {http: status(500), want: outcome{500, "answered 500"}},
		"101": {raw: answer(
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
			want: outcome{101, "answered 101"}},
		"many 1xx before 200": {raw: answer(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 4) +
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), want: outcome{200, ""}},
		"hangs": {raw: func(ctx context.Context, _ net.Conn, _ *http.Request) { <-ctx.Done() },
			want: outcome{0, "no answer within 2s"}},
		"trickles its head": {raw: trickle("HTTP/1.1 200 OK\r\nX: "), want: outcome{0, "no answer within 2s"}},
		"trickles its body": {raw: trickle("HTTP/1.1 200 OK\r\n\r\n"), want: outcome{200, ""}},
		"closes at once":    {raw: answer(""), want: outcome{0, "the connection was closed without an answer"}},
		"closes in its head": {raw: answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"),
			want: outcome{0, "the connection was closed without an answer"}},
		"closes in its body": {raw: answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes."),
			want: outcome{200, ""}},
		"garbage": {raw: answer("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
			want: outcome{0, "the answer is not valid HTTP"}},
		"garbage headers": {raw: answer("HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"),
			want: outcome{0, "the answer is not valid HTTP"}},
		"endless headers": {raw: answer("HTTP/1.1 200 OK\r\n" + strings.Repeat(longHeader, 200)),
			want: outcome{0, "the answer is not valid HTTP"}},
		"endless body": {http: endless, want: outcome{200, ""}},
		"gzip bomb":    {http: bomb, want: outcome{200, ""}},
		"resets":       {raw: reset, want: outcome{0, "the connection was reset"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var url string
			if c.http != nil {
				server := httptest.NewServer(c.http)
				t.Cleanup(server.Close)
				url = server.URL
			} else {
				url = rawServer(t, c.raw)
			}
			began := time.Now()
			got := newSender(t, nil).Send(t.Context(), message(url+"/hook?key=secret"))
			if took := time.Since(began); took > timeout+5*time.Second {
				t.Errorf("took %s", took)
			}
			if got.Err != nil && strings.Contains(got.Err.Error(), "secret") {
				t.Errorf("the error repeats the URL: %v", got.Err)
			}
			if (outcome{got.StatusCode, got.Failure}) != c.want {
				t.Errorf("got %d %q, want %d %q (%v)",
					got.StatusCode, got.Failure, c.want.status, c.want.failure, got.Err)
			}
			if got.Address != strings.TrimPrefix(url, "http://") {
				t.Errorf("address %q, want %q", got.Address, url)
			}
			whole := strings.HasSuffix(string(got.Head), "\r\n\r\nthis is the body")
			if len(got.Head) > models.WebhookHeadLimit || got.StatusCode == http.StatusInternalServerError && !whole {
				t.Errorf("head (%d bytes):\n%s", len(got.Head), got.Head)
			}
		})
	}
}

func reset(_ context.Context, c net.Conn, _ *http.Request) { _ = c.(*net.TCPConn).SetLinger(0) }

func endless(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
			return
		}
	}
}

// compressedZeros returns 16 MiB of zeros, compressed.
var compressedZeros = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(make([]byte, 16<<20))
	_ = z.Close()
	return packed.Bytes()
})

// bomb answers with 16 GiB of zeros, compressed.
func bomb(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	for range 1024 {
		if _, err := w.Write(compressedZeros()); err != nil {
			return
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	followed := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		followed <- r.URL.Path
		http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
	}))
	defer server.Close()
	newSender(t, nil).Send(t.Context(), message(server.URL))
	if n := len(followed); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	next := models.NewWebhookSecret()
	m := message("")
	m.Secrets.Live = append([]models.WebhookSecret{next}, m.Secrets.Live...)
	requests := make(chan *http.Request, 1)
	bodies := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- r
		bodies <- body
	}))
	defer server.Close()
	m.URL = server.URL + "/hook?x=1"
	if got := newSender(t, nil).Send(t.Context(), m); got.StatusCode != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	r, body := <-requests, <-bodies
	if string(body) != string(m.Event.Body) {
		t.Errorf("body %s, want %s", body, m.Event.Body)
	}
	mac := hmac.New(sha256.New, []byte(secrets.Current.Reveal()))
	mac.Write(body)
	if got, want := r.Header.Get("x-svc-signature"), base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want {
		t.Errorf("x-svc-signature %s, want %s", got, want)
	}
	for _, secret := range m.Secrets.Live {
		wh, err := standardwebhooks.NewWebhook(secret.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if err := wh.Verify(body, r.Header); err != nil {
			t.Errorf("the Standard Webhooks library: %v", err)
		}
	}
	for name, want := range map[string]string{
		"Webhook-Id": m.Event.ID.String(), "Svc-Webhook-Attempt": "3", "Svc-Event-Type": "batchSettled",
		"Svc-Webhook-Test": "",
		"Content-Type":     "application/json;charset=UTF-8",
		"User-Agent":       "svc-webhooks/1", "Idempotency-Key": "", "Content-Length": fmt.Sprint(len(m.Event.Body)),
	} {
		got := r.Header.Get(name)
		if name == "Content-Length" {
			got = fmt.Sprint(r.ContentLength)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A kept connection that the receiver has closed is replaced without a failed attempt.
func TestClosedConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	served := map[string]int{} // by connection
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if served[r.RemoteAddr]++; served[r.RemoteAddr] > 1 {
			panic(http.ErrAbortHandler) // resets the connection
		}
	}))
	defer server.Close()
	s := newSender(t, nil)
	for range 5 {
		if got := s.Send(t.Context(), message(server.URL)); got.StatusCode != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(served) != 5 {
		t.Errorf("%d connections", len(served))
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	addresses := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		addresses <- r.RemoteAddr
	}))
	defer server.Close()
	s := newSender(t, nil)
	for _, fresh := range []bool{false, false, true} {
		m := message(server.URL)
		m.Fresh = fresh
		if got := s.Send(t.Context(), m); got.StatusCode != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	first, second, third := <-addresses, <-addresses, <-addresses
	if first != second || third == first {
		t.Errorf("connections %s, %s, and a fresh one %s", first, second, third)
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	trusting := func(cfg *webhook.Config) { cfg.TLS = server.Client().Transport.(*http.Transport).TLSClientConfig }
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer plain.Close()
	for _, c := range []struct {
		name, url, want string
		change          func(*webhook.Config)
	}{
		{"unknown authority", server.URL, "the certificate is not signed by an authority that we trust", nil},
		{"trusted", server.URL, "", trusting},
		{"another name", strings.Replace(server.URL, "127.0.0.1", "localhost", 1),
			"the certificate is for another name", trusting},
		{"no TLS", strings.Replace(plain.URL, "http", "https", 1), "the port does not speak TLS", trusting},
		{"refused", "http://127.0.0.1:1", "the connection was refused", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newSender(t, c.change).Send(t.Context(), message(c.url)); got.Failure != c.want {
				t.Errorf("got %q, want %q (%v)", got.Failure, c.want, got.Err)
			}
		})
	}
}

func TestNoProxyOfTheEnvironment(t *testing.T) {
	proxied := make(chan struct{}, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proxied <- struct{}{} }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	// The target is not a loopback address, for which net/http ignores proxies.
	got := newSender(t, nil).Send(t.Context(), message("http://hook.invalid/"))
	if len(proxied) != 0 || got.Failure != "the name cannot be resolved" {
		t.Errorf("%+v, %d requests at the proxy", got, len(proxied))
	}
}
