package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"partnerbilling/api"
	"partnerbilling/models"
)

// stream reads server-sent events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
	id    string // the last one
}

// listen starts a stream, or resumes one after the given id.
func (h *hooks) listen(after ...string) *stream {
	h.t.Helper()
	return openStream(h.t, h.BaseURL+"/webhooks/listen", "owner", after...)
}

// openStream starts a stream at a URL, or resumes one after the given id.
func openStream(t *testing.T, url, token string, after ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "text/event-stream")
	for _, id := range after {
		request.Header.Set("Last-Event-ID", id)
	}
	transport := &http.Transport{}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK ||
		got != "text/event-stream;charset=UTF-8" {
		t.Fatalf("%d, %s", response.StatusCode, got)
	}
	s := &stream{
		t: t, lines: bufio.NewScanner(response.Body),
		close: func() { cancel(); _ = response.Body.Close(); transport.CloseIdleConnections() },
	}
	t.Cleanup(s.close)
	s.want(": listening")
	s.readID()
	s.want("")
	return s
}

func (s *stream) line() string {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatalf("the stream has ended: %v", s.lines.Err())
	}
	return s.lines.Text()
}

func (s *stream) want(line string) {
	s.t.Helper()
	if got := s.line(); got != line {
		s.t.Fatalf("got %q, want %q", got, line)
	}
}

// readID reads the next id line and returns the event's key in it. It skips heartbeats, which come
// between the events of a slow machine.
func (s *stream) readID() (key string) {
	s.t.Helper()
	line := s.line()
	for line == ": heartbeat" {
		s.want("")
		line = s.line()
	}
	id, ok := strings.CutPrefix(line, "id: ")
	key, _, positioned := strings.Cut(id, ":")
	if !ok || !positioned {
		s.t.Fatalf("got %q, want an id", line)
	}
	s.id = id
	return key
}

// event reads one event of a type.
func (s *stream) event(id models.WebhookEventID, event models.WebhookEventType) heardEvent {
	s.t.Helper()
	if key := s.readID(); key != id.String() {
		s.t.Fatalf("got %s, want %s", key, id)
	}
	s.want("event: " + string(event))
	return s.streamedRequest()
}

func TestListen(t *testing.T) {
	h := newHooks(t, nil)
	s := h.listen()
	id, _ := h.insert()
	if first := s.event(id, models.EventTransactionStatus); first.header.Get("x-svc-signature") != "" ||
		!strings.Contains(first.body, "<&>\u2028") {
		t.Errorf("without a secret: %+v", first)
	}
	_, endpoint := h.put("default", "https://example.com/")
	id, _ = h.insert()
	signed := s.event(id, models.EventTransactionStatus)
	wh, err := standardwebhooks.NewWebhook(endpoint.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := wh.Verify([]byte(signed.body), signed.header); err != nil ||
		signed.header.Get("webhook-id") != id.String() {
		t.Errorf("%v: %+v", err, signed)
	}
}

// HTTP/1.0 knows no chunks, so the stream ends with the connection.
func TestListenByHTTP10(t *testing.T) {
	h := newHooks(t, nil)
	connection, err := net.Dial("tcp", strings.TrimPrefix(h.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection,
		"GET /webhooks/listen HTTP/1.0\r\nAuthorization: Bearer owner\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != http.StatusOK || len(response.TransferEncoding) > 0 ||
		response.ContentLength != -1 || !response.Close ||
		response.Header.Get("Content-Type") != "text/event-stream;charset=UTF-8" ||
		response.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("%v, %+v", err, response)
	}
	s := &stream{t: h.t, lines: bufio.NewScanner(response.Body), close: func() {}}
	s.want(": listening")
	s.readID()
	s.want("")
	id, _ := h.insert()
	s.event(id, models.EventTransactionStatus)
}

// A resumed stream delivers events of all types, each exactly once.
func TestListenResumes(t *testing.T) {
	h := newHooks(t, nil)
	h.Send("PUT", "/webhooks/endpoints/default",
		map[string]any{"url": "https://example.com/", "events": models.WebhookEventTypes}).Expect(201)
	s := h.listen()
	s.close()
	first, _ := h.insert()
	s = h.listen(s.id) // before the first event
	s.event(first, models.EventTransactionStatus)
	second, _ := h.insert()
	s.event(second, models.EventTransactionStatus)
	cutOff := s.id
	s.close()
	h.Post("/webhooks/events/"+first.String()+"/redelivery", nil).Expect(202)
	h.invite(t, "eve")
	h.Post(h.customer("eve", "/revocation"), nil).Expect(200)
	s = h.listen(cutOff)
	s.event(first, models.EventTransactionStatus)
	key := s.readID()
	s.want("event: customerRevoked")
	if e := s.streamedRequest(); e.header.Get("webhook-id") != key ||
		e.header.Get("svc-event-type") != "customerRevoked" || e.header.Get("x-svc-signature") == "" {
		t.Errorf("%s: %+v", key, e)
	}
	for _, id := range []string{"x", second.String(), second.String() + ":x", cutOff + "0x"} {
		h.With("Last-Event-ID", id).Get("/webhooks/listen").Refused(400, "requests:invalid-header Last-Event-ID")
	}
}

// An organisation's streams are bounded. Others may listen meanwhile, and a closed stream counts no
// more.
func TestListenersAreBounded(t *testing.T) {
	h := newHooks(t, nil)
	first := h.listen()
	for range api.MaxOrganisationStreams - 1 {
		h.listen()
	}
	a := h.Get("/webhooks/listen").Refused(429, "requests:rate-limited")
	if got := a.Header.Get("Retry-After"); got != "1" ||
		!strings.Contains(a.Faults()[0].Message, "as many open streams as it may have") {
		t.Errorf("Retry-After %q, %+v", got, a.Faults())
	}
	first.close()
	h.Send("HEAD", "/webhooks/listen", nil).Expect(200) // opens none
	poll, ended := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer poll.Stop()
	for {
		ctx, cancel := context.WithCancel(context.Background())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.BaseURL+"/webhooks/listen", nil)
		check(t, err)
		request.Header.Set("Authorization", "Bearer owner")
		response, err := http.DefaultTransport.RoundTrip(request)
		check(t, err)
		cancel()
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
		select {
		case <-poll.C:
		case <-ended:
			t.Fatalf("the closed stream still counts: %d", response.StatusCode)
		default:
		}
	}
}

type heardEvent struct {
	header http.Header
	body   string
}

func (s *stream) streamedRequest() heardEvent {
	s.t.Helper()
	var data struct {
		Headers map[string]string
		Body    string
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(s.line(), "data: ")), &data); err != nil {
		s.t.Fatal(err)
	}
	s.want("")
	e := heardEvent{http.Header{}, data.Body}
	for name, value := range data.Headers {
		e.header.Set(name, value)
	}
	return e
}

// Open streams do not delay a shutdown.
func TestListenEndsOnShutdown(t *testing.T) {
	var cfg api.Config
	h := newHooks(t, func(c *api.Config) { cfg = *c })
	server := api.New(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	there := *h.Client
	there.BaseURL = "http://" + ln.Addr().String()
	h.Client = &there
	s := h.listen()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("shut down: %v", err)
	}
	if s.lines.Scan() || s.lines.Err() != nil {
		t.Errorf("the stream did not end well: %q, %v", s.lines.Text(), s.lines.Err())
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
