// Package webhook sends notifications to servers that partners name, and trusts them with nothing: not with time, memory,
// connections, nor with a way into our network.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"partnerbilling/models"
)

const (
	// Timeout bounds an attempt as a whole: name, connection, TLS, request, and answer with its body.
	Timeout = 10 * time.Second
	// bodyLimit is how much of an answer's body is read, in bytes after decoding.
	bodyLimit = 64 << 10
	// headerLimit is how much of an answer's head is read, in bytes.
	headerLimit = 64 << 10
	// userAgent is what receivers see.
	userAgent = "svc-webhooks/1"
)

// Config is what a Sender is made of. The zero Config is production's.
type Config struct {
	Targets  models.WebhookTargets
	Timeout  time.Duration    // default Timeout
	Now      func() time.Time // wall time, which receivers compare signatures with; default time.Now
	Resolver *net.Resolver    // default the system's
	TLS      *tls.Config      // for tests: authorities to trust
}

// Message is one notification to be sent.
type Message struct {
	URL     string
	Event   models.WebhookEvent // with its body
	Attempt int                 // from 1
	Secrets models.WebhookSecrets
	// Fresh asks for a new connection, to where the name leads now.
	Fresh bool
}

// Result is what came of an attempt. The status alone decides: 2xx is a success, whatever the body does.
type Result struct {
	StatusCode int           // 0: no answer
	Duration   time.Duration // until the answer was read, or given up
	Address    string        // that was connected to, or tried last; "" if none, or if it must not be dialled
	Failure    string        // for the partner; "" if it succeeded
	Err        error         // for the log; nil if there was an answer
	Head       []byte        // the answer's beginning, at most models.WebhookHeadLimit
	RetryAfter time.Duration // asked for by the answer; -1: nothing asked
}

// Success reports whether the receiver has taken the notification.
func (r *Result) Success() bool { return r.StatusCode >= 200 && r.StatusCode <= 299 }

// Gone reports whether the receiver said that it is no more.
func (r *Result) Gone() bool { return r.StatusCode == http.StatusGone }

// Sender sends notifications. It is safe for concurrent use.
type Sender struct {
	targets       models.WebhookTargets
	timeout       time.Duration
	now           func() time.Time
	pooled, fresh *http.Client
}

// NewSender makes a sender.
func NewSender(cfg Config) *Sender {
	if cfg.Timeout <= 0 {
		cfg.Timeout = Timeout
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Sender{targets: cfg.Targets, timeout: cfg.Timeout, now: cfg.Now}
	s.pooled, s.fresh = s.newClient(cfg, false), s.newClient(cfg, true)
	return s
}

// Close closes idle connections.
func (s *Sender) Close() {
	s.pooled.CloseIdleConnections()
	s.fresh.CloseIdleConnections()
}

func (s *Sender) newClient(cfg Config, fresh bool) *http.Client {
	// A connection that comes up after its attempt has ended may serve another; the time-outs end those that never do.
	dialer := &net.Dialer{
		Resolver: cfg.Resolver, Timeout: cfg.Timeout, KeepAlive: 15 * time.Second, ControlContext: s.guard,
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // the environment's proxy would dial for us, where we must not
			DialContext:            dialer.DialContext,
			TLSClientConfig:        cfg.TLS.Clone(),
			TLSHandshakeTimeout:    cfg.Timeout,
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
			DisableKeepAlives:      fresh,
			MaxIdleConns:           2048,
			MaxIdleConnsPerHost:    8,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: headerLimit,
			WriteBufferSize:        8 << 10,
		},
	}
}

// tries is where the addresses that an attempt tried are noted.
type tries struct {
	mu   sync.Mutex
	last string
}

type triesKey struct{}

func (t *tries) note(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = address
}

func (t *tries) address() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// guard judges the very address that is about to be dialled, at every dial: what a name was resolved to earlier says
// nothing.
func (s *Sender) guard(ctx context.Context, network, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return models.ErrWebhookAddress
	}
	if err := s.targets.CheckAddr(addr); err != nil {
		return err // the partner need not learn where our resolver leads
	}
	if t, ok := ctx.Value(triesKey{}).(*tries); ok {
		t.note(address)
	}
	return nil
}

// Send makes one attempt. It takes no longer than the time-out.
func (s *Sender) Send(ctx context.Context, m Message) Result {
	began := time.Now()
	result := Result{RetryAfter: -1}
	tried := &tries{}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, triesKey{}, tried), s.timeout)
	defer cancel()
	response, err := s.exchange(ctx, m, tried)
	if err == nil {
		result.StatusCode = response.StatusCode
		result.RetryAfter = retryAfter(response.Header.Get("Retry-After"), s.now())
		result.Head = readHead(response)
		_ = response.Body.Close()
	}
	result.Address, result.Err, result.Duration = tried.address(), err, time.Since(began)
	switch {
	case err != nil:
		result.Failure = describe(err, s.timeout)
	case !result.Success():
		result.Failure = fmt.Sprintf("answered %d", result.StatusCode)
	}
	return result
}

func (s *Sender) exchange(ctx context.Context, m Message, tried *tries) (*http.Response, error) {
	if err := s.targets.CheckURL(m.URL); err != nil { // what was allowed once may not be now
		return nil, fmt.Errorf("%w: the URL %w", errTarget, err)
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { tried.note(c.Conn.RemoteAddr().String()) },
	})
	// A bytes.Reader makes GetBody, so that a connection that the receiver had closed is replaced without a failure.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Event.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTarget, err)
	}
	for _, h := range m.Secrets.Sign(&m.Event, s.now(), m.Attempt) {
		request.Header.Set(h.Name, h.Value)
	}
	request.Header.Set("User-Agent", userAgent)
	request.Header["Idempotency-Key"] = nil // sent nowhere; it tells net/http that the POST may be repeated
	client := s.pooled
	if m.Fresh {
		client = s.fresh
	}
	return client.Do(request)
}

var errTarget = errors.New("webhook: not a target")

// readHead reads the body, as far as it may, and keeps what an engineer would want to see of the answer.
func readHead(response *http.Response) []byte {
	head := &limited{limit: models.WebhookHeadLimit}
	fmt.Fprintf(head, "%s %s\r\n", response.Proto, response.Status)
	_ = response.Header.Write(head)
	_, _ = io.WriteString(head, "\r\n")
	if response.Body != http.NoBody {
		_, _ = io.Copy(head, io.LimitReader(response.Body, bodyLimit)) // its errors decide nothing
	}
	return head.kept
}

// limited keeps the first bytes that are written to it.
type limited struct {
	limit int
	kept  []byte
}

// buffers are for reading what is mostly thrown away.
var buffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// ReadFrom implements io.ReaderFrom, without the large buffer that io.Copy makes for itself.
func (l *limited) ReadFrom(r io.Reader) (n int64, err error) {
	buffer := buffers.Get().(*[4 << 10]byte) //nolint:forcetypeassert // there is nothing else in it
	defer buffers.Put(buffer)
	for {
		read, err := r.Read(buffer[:])
		n += int64(read)
		_, _ = l.Write(buffer[:read]) // never fails
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

func (l *limited) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[:min(len(p), l.limit-len(l.kept))]...)
	return len(p), nil
}
