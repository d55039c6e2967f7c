package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/client"
	"partnerbilling/deploy/local/localtest"
)

// stream is an API with a stream of events. Each connection gets one event after its Last-Event-ID.
type stream struct {
	mu     sync.Mutex
	events int // in all
	asked  []string
	opened chan struct{} // closed by the first connection
	once   sync.Once
	idle   chan struct{} // closed when a connection finds no further event
}

func newStream(events int) *stream { return &stream{events: events, opened: make(chan struct{})} }

// ServeHTTP implements http.Handler.
func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.once.Do(func() { close(s.opened) })
	s.mu.Lock()
	last := r.Header.Get("Last-Event-ID")
	s.asked = append(s.asked, last)
	n := 0
	if last != "" {
		_, _ = fmt.Sscanf(last, "p%d", &n)
	}
	_, _ = fmt.Fprintf(w, ": listening\nid: p%d\n\n", n)
	if n < s.events {
		body := fmt.Sprintf(`{"data":{"idempotencyKey":"evt_%d","orderId":"é & <%d>"}}`, n+1, n+1)
		kind := client.EventTransactionStatus
		if n%2 == 1 {
			kind = client.EventBatchSettled
		}
		headers := map[string]string{"svc-event-type": kind, "content-type": "application/json;charset=UTF-8"}
		signed := client.SignWebhook(fmt.Sprintf("evt_%d", n+1), time.Now(), []byte(body), testSecret(1))
		for name, values := range signed {
			headers[strings.ToLower(name)] = values[0]
		}
		data, _ := json.Marshal(map[string]any{"headers": headers, "body": body})
		_, _ = fmt.Fprintf(w, "id: p%d\nevent: %s\ndata: %s\n\n", n+1, kind, data)
		s.mu.Unlock()
		return
	}
	close(s.idle)
	s.mu.Unlock()
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// listenUntilIdle runs listen until the stream has no further event; see runUntilIdle.
func listenUntilIdle(t *testing.T, api *stream, url string, args ...string) (out, errOut string) {
	t.Helper()
	api.idle = make(chan struct{})
	return runUntilIdle(t, url, api.idle, []string{"listen"}, args)
}

// runUntilIdle runs a command that follows a stream until idle is closed. NAME=VALUE before the
// flags adds a variable.
func runUntilIdle(
	t *testing.T, url string, idle <-chan struct{}, command, args []string,
) (out, errOut string) {
	t.Helper()
	var stdout, stderr syncBuffer
	environment := map[string]string{"BASE_URL": url, "CLIENT_ID": "i", "CLIENT_SECRET": "s"}
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") { // variables come before the flags
		name, value, _ := strings.Cut(args[0], "=")
		environment[name], args = value, args[1:]
	}
	c := &ctl{getenv: func(name string) string { return environment[name] }, out: &stdout, errOut: &stderr}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan int, 1)
	go func() { ended <- c.run(ctx, slices.Concat(command, args)) }()
	select {
	case <-idle:
	case code := <-ended:
		t.Fatalf("%s ended with %d: %s", strings.Join(command, " "), code, stderr.String())
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	return stdout.String(), stderr.String()
}

// An event waits until the target listens, is forwarded once with its bytes and signatures, and a
// later run continues after it.
func TestListenForwards(t *testing.T) {
	t.Parallel()
	api := newStream(4)
	server := newAPI(t, map[string]http.HandlerFunc{"GET /webhooks/listen": api.ServeHTTP})
	address := localtest.FreeAddress(t) // nothing listens at first
	var mu sync.Mutex
	var got []string
	target := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			event, err := client.ParseEvent(r.Header, body, testSecret(1))
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprint(event.IdempotencyKey, " ", r.Header.Get("Svc-Event-Type"), " ", err))
			w.WriteHeader(http.StatusInternalServerError) // an answer, which listen reports
		})}
	defer func() { _ = target.Close() }()
	go func() {
		<-api.opened // the first event is on its way
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		_ = target.Serve(ln)
	}()
	state := filepath.Join(t.TempDir(), "position")
	args := []string{"--forward-to", "http://" + address, "--state", state}
	out, _ := listenUntilIdle(t, api, server.URL, args...)
	if strings.Count(out, "500 in ") != 4 || strings.Count(out, "evt_") != 4 {
		t.Errorf("printed %s", out)
	}
	kept := fmt.Sprintf(`{"baseUrl":%q,"clientId":"i","position":"p4"}`+"\n", server.URL)
	if position, err := os.ReadFile(state); err != nil || string(position) != kept {
		t.Errorf("kept %q, %v", position, err)
	}
	api.events, api.asked = 6, nil
	listenUntilIdle(t, api, server.URL, append(args, "--events", "batchSettled")...)
	if api.asked[0] != "p4" {
		t.Errorf("the second run asked for %q", api.asked)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		"evt_1 transactionStatus <nil>", "evt_2 batchSettled <nil>", "evt_3 transactionStatus <nil>",
		"evt_4 batchSettled <nil>", "evt_6 batchSettled <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +forwarded):\n%s", diff)
	}
}

// An event counts as forwarded once its request is sent: a run that is interrupted before the
// answer keeps its position.
func TestListenKeepsAnInterruptedEvent(t *testing.T) {
	t.Parallel()
	api := newStream(1)
	server := newAPI(t, map[string]http.HandlerFunc{"GET /webhooks/listen": api.ServeHTTP})
	received := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(received)
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer target.Close()
	state := filepath.Join(t.TempDir(), "position")
	args := []string{"--forward-to", target.URL, "--state", state}
	runUntilIdle(t, server.URL, received, []string{"listen"}, args)
	if position, err := os.ReadFile(state); err != nil || !strings.Contains(string(position), `"position":"p1"`) {
		t.Errorf("kept %q, %v", position, err)
	}
}

// Without a target listen prints bodies or, with secrets, whether they are signed.
func TestListenPrints(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(testSecret(1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, `{"data":{"idempotencyKey":"evt_1","orderId":"é & <1>"}}` + "\n"},
		{[]string{"--secret", testSecret(1)}, "verified:  is , order \"é & <1>\", paid 0\n"},
		{[]string{"--secret", "@" + file}, "verified:  is , order \"é & <1>\", paid 0\n"},
		{[]string{"WEBHOOK_SECRET=" + testSecret(1)}, "verified:  is , order \"é & <1>\", paid 0\n"},
		{
			[]string{"WEBHOOK_SECRET=" + testSecret(2), "WEBHOOK_NEXT_SECRET=" + testSecret(1)},
			"verified:  is , order \"é & <1>\", paid 0\n",
		},
		{
			[]string{"WEBHOOK_SECRET=" + testSecret(1), "--secret", testSecret(2)},
			"REFUSED: client: the signature does not match the body\n",
		},
		{[]string{"--secret", testSecret(2)}, "REFUSED: client: the signature does not match the body\n"},
	} {
		api := newStream(1)
		server := newAPI(t, map[string]http.HandlerFunc{"GET /webhooks/listen": api.ServeHTTP})
		if out, _ := listenUntilIdle(t, api, server.URL, c.args...); out != c.want {
			t.Errorf("%q prints %q", c.args, out)
		}
	}
	r := svcctl(t.Context(), "http://127.0.0.1:1", "listen", "--forward-to", "localhost:3000")
	if r.code != exitUsage || !strings.Contains(r.errOut, "--forward-to must be a URL") {
		t.Errorf("%+v", r)
	}
}

// A position counts only for the service and the client that it is of. Another file is left alone.
func TestListenPositionBelongsToAService(t *testing.T) {
	t.Parallel()
	api := newStream(0)
	server := newAPI(t, map[string]http.HandlerFunc{"GET /webhooks/listen": api.ServeHTTP})
	state := filepath.Join(t.TempDir(), "position")
	for name, c := range map[string]struct{ content, asked, said string }{
		"same":           {`{"baseUrl":"` + server.URL + `","clientId":"i","position":"p9"}`, "p9", ""},
		"other service":  {`{"baseUrl":"http://other","clientId":"i","position":"p9"}`, "", "holds the position of client i at http://other: beginning now"},
		"other client":   {`{"baseUrl":"` + server.URL + `","clientId":"j","position":"p9"}`, "", "of client j at "},
		"an empty file":  {"", "", ""},
		"not a position": {"rows", "", ""},
	} {
		if err := os.WriteFile(state, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.content == "rows" {
			r := svcctl(t.Context(), server.URL, "listen", "--state", state)
			content, err := os.ReadFile(state)
			if r.code != exitUsage || !strings.Contains(r.errOut, "does not hold a position") || err != nil ||
				string(content) != c.content {
				t.Errorf("%s: %+v, %q, %v", name, r, content, err)
			}
			continue
		}
		api.asked = nil
		_, errOut := listenUntilIdle(t, api, server.URL, "--state", state)
		if api.asked[0] != c.asked || !strings.Contains(errOut, c.said) ||
			strings.Contains(errOut, "beginning now") != (c.said != "") {
			t.Errorf("%s: asked for %q, said %q", name, api.asked, errOut)
		}
	}
}
