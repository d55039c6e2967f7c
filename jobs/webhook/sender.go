// Package webhook sends webhook events to the servers of partners, as signed POST requests. It does
// not trust these servers: it bounds the time, memory and connections of each attempt, and excludes
// addresses inside the service's network.
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
	"net/url"
	"sync"
	"syscall"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/tracing"
)

const (
	// Timeout bounds an attempt: name resolution, connection, TLS handshake, request and answer.
	Timeout = 10 * time.Second
	// bodyLimit is the maximum number of bytes, after decoding, that is read of an answer's body.
	bodyLimit = 64 << 10
	// headerLimit is the maximum number of bytes that is read of an answer's header.
	headerLimit = 64 << 10
	// userAgent is the User-Agent header of notifications.
	userAgent = "svc-webhooks/1"
)

// Config configures a Sender. The zero Config is for production.
type Config struct {
	Targets  models.WebhookTargets
	Timeout  time.Duration    // default Timeout
	Now      func() time.Time // wall clock for signatures and Retry-After; default time.Now
	Resolver *net.Resolver    // default the system's resolver
	TLS      *tls.Config      // for tests: authorities to trust
}

// Message is one attempt to deliver a webhook event.
type Message struct {
	URL     string
	Event   *models.WebhookEvent // with its body
	Attempt int                  // from 1
	Secrets models.WebhookSecrets
	// Fresh forces a new connection, for which the sender resolves the name anew.
	Fresh bool
}

// Result is the result of an attempt. Only StatusCode decides: 2xx is a success, even if the body
// cannot be read.
type Result struct {
	StatusCode int           // 0 without an answer
	Duration   time.Duration // until the answer was read or the attempt given up
	Address    string        // connected to, or tried last; "" if none was allowed
	Failure    string        // text for the partner; "" after a success
	Err        error         // for the log; nil with an answer
	Head       []byte        // start of the answer, at most models.WebhookHeadLimit bytes
	RetryAfter time.Duration // wait that the answer asks for; -1 if it asks for none
}

// Success reports whether the receiver accepted the notification.
func (r *Result) Success() bool { return r.StatusCode >= 200 && r.StatusCode <= 299 }

// Gone reports whether the receiver answered 410: it wants no more notifications.
func (r *Result) Gone() bool { return r.StatusCode == http.StatusGone }

// Sender sends notifications. It is safe for concurrent use.
type Sender struct {
	targets       models.WebhookTargets
	timeout       time.Duration
	now           func() time.Time
	pooled, fresh *http.Client
}

// NewSender returns a sender.
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

// newClient returns a client that keeps connections or, if fresh is set, opens one for each
// request.
func (s *Sender) newClient(cfg Config, fresh bool) *http.Client {
	// A dial may outlast its attempt, because the connection may serve another attempt. The
	// time-outs of dial and handshake end it in any case.
	dialer := &net.Dialer{
		Resolver: cfg.Resolver, Timeout: cfg.Timeout, KeepAlive: 15 * time.Second, ControlContext: s.guard,
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy from the environment would dial unchecked addresses
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

// lastAddress holds the last address that an attempt tried. It is safe for concurrent use.
type lastAddress struct {
	mu      sync.Mutex
	address string
}

// lastAddressKey is the context key of an attempt's *lastAddress.
type lastAddressKey struct{}

func (l *lastAddress) set(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = address
}

func (l *lastAddress) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

// guard checks each address right before it is dialled. An earlier check of the name proves
// nothing, since the name may resolve to another address now.
func (s *Sender) guard(ctx context.Context, network, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return models.ErrWebhookAddress
	}
	if err := s.targets.CheckAddr(addr); err != nil {
		return err // not recorded: the partner would see where an internal name leads
	}
	if last, ok := ctx.Value(lastAddressKey{}).(*lastAddress); ok {
		last.set(address)
	}
	return nil
}

// Send makes one attempt. It returns within the time-out of the Config.
func (s *Sender) Send(ctx context.Context, m Message) Result {
	began := time.Now()
	result := Result{RetryAfter: -1}
	last := &lastAddress{}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, lastAddressKey{}, last), s.timeout)
	defer cancel()
	response, err := s.exchange(ctx, m, last)
	if err == nil {
		result.StatusCode = response.StatusCode
		result.RetryAfter = retryAfter(response.Header.Get("Retry-After"), s.now())
		result.Head = readHead(response)
		_ = response.Body.Close()
	}
	result.Address, result.Err, result.Duration = last.get(), err, time.Since(began)
	switch {
	case err != nil:
		result.Failure = describe(err, s.timeout)
	case !result.Success():
		result.Failure = fmt.Sprintf("answered %d", result.StatusCode)
	}
	return result
}

// exchange sends the request and returns the answer, with its body unread. It records the address
// in last.
func (s *Sender) exchange(ctx context.Context, m Message, last *lastAddress) (*http.Response, error) {
	if err := s.targets.CheckURL(m.URL); err != nil { // the rules may have changed since it was set
		return nil, fmt.Errorf("%w: the URL %w", errTarget, err)
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { last.set(c.Conn.RemoteAddr().String()) },
	})
	// A bytes.Reader gives the request GetBody. net/http can then repeat the request on a new
	// connection if the receiver has closed a kept one.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Event.Body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTarget, err)
	}
	for _, h := range m.Secrets.Sign(m.Event, s.now(), m.Attempt) {
		request.Header.Set(h.Name, h.Value)
	}
	request.Header.Set("User-Agent", userAgent)
	tracing.Inject(ctx, request.Header)
	request.Header["Idempotency-Key"] = nil // not sent; tells net/http that the POST may be repeated
	client := s.pooled
	if m.Fresh {
		client = s.fresh
	}
	response, err := client.Do(request)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err // logged without the URL, whose query may hold a secret of the partner
	}
	return response, err
}

// errTarget reports a URL that is not allowed.
var errTarget = errors.New("webhook: not a target")

// readHead reads the body up to bodyLimit. It returns the start of the answer, status line and
// header included, for the partner to inspect.
func readHead(response *http.Response) []byte {
	head := &headWriter{limit: models.WebhookHeadLimit}
	fmt.Fprintf(head, "%s %s\r\n", response.Proto, response.Status)
	_ = response.Header.Write(head)
	_, _ = io.WriteString(head, "\r\n")
	if response.Body != http.NoBody {
		// An error does not change the result.
		_, _ = io.Copy(head, io.LimitReader(response.Body, bodyLimit))
	}
	return head.kept
}

// headWriter keeps the first limit bytes that are written to it, and drops the others.
type headWriter struct {
	limit int
	kept  []byte
}

// buffers holds buffers for reading bodies.
var buffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// ReadFrom implements io.ReaderFrom for io.Copy, which would otherwise allocate a larger buffer.
func (h *headWriter) ReadFrom(r io.Reader) (n int64, err error) {
	buffer := buffers.Get().(*[4 << 10]byte) //nolint:forcetypeassert // the pool holds nothing else
	defer buffers.Put(buffer)
	for {
		read, err := r.Read(buffer[:])
		n += int64(read)
		_, _ = h.Write(buffer[:read]) // never fails
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

func (h *headWriter) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), h.limit-len(h.kept))]...)
	return len(p), nil
}
