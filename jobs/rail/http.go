package rail

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
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"partnerbilling/models"
	"partnerbilling/models/tracing"
)

// HTTPConfig configures an HTTP rail.
type HTTPConfig struct {
	// BaseURL is the URL of the gateway: https, without query or fragment.
	BaseURL string
	// AllowPlainHTTP also allows an http BaseURL, for a gateway on a private network.
	AllowPlainHTTP bool
	// Key signs the requests.
	Key SigningKey
	// Timeout bounds one exchange, from the connection to the last byte; default 10 s. The wait for
	// a slot is bounded by the caller's context only.
	Timeout time.Duration
	// Concurrency is the number of slots: the maximum number of requests in flight, and of
	// connections; default 64.
	Concurrency int
	// Limiter limits the rate of requests, in Admit; nil means no limit.
	Limiter Limiter
	// TLS replaces the default TLS settings, for a gateway with its own certificate authority.
	TLS *tls.Config
	// Now is the wall clock for signatures; default time.Now.
	Now func() time.Time
}

// HTTP is a rail behind a payment gateway that serves the contract in HTTP.md. The contract has one
// debit per request, so a call with many keys sends requests concurrently, up to Concurrency.
type HTTP struct {
	base    string // without a trailing slash
	key     SigningKey
	timeout time.Duration
	slots   chan struct{} // full while every slot is in use
	limiter Limiter
	client  *http.Client
	now     func() time.Time
}

var _ Rail = (*HTTP)(nil)

// NewHTTP returns an HTTP rail without connecting. It refuses an invalid BaseURL or Key.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	base, err := parseBase(cfg)
	if err != nil {
		return nil, err
	}
	if !validKeyID(cfg.Key.ID) || len(cfg.Key.Secret) == 0 {
		return nil, errors.New("rail: signing key without a valid id or a secret")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 64
	}
	if cfg.Limiter == nil {
		cfg.Limiter = Unlimited{}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &HTTP{
		base: base, key: cfg.Key, timeout: cfg.Timeout, slots: make(chan struct{}, cfg.Concurrency),
		limiter: cfg.Limiter, client: newClient(cfg), now: cfg.Now,
	}, nil
}

// parseBase checks BaseURL and returns it without a trailing slash.
func parseBase(cfg HTTPConfig) (string, error) {
	u, err := url.Parse(cfg.BaseURL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("rail: base URL is not an absolute URL without credentials, query and fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !cfg.AllowPlainHTTP):
		return "", fmt.Errorf("rail: base URL has scheme %q, want https", u.Scheme)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// newClient returns a client that uses no proxy, follows no redirect, and bounds the size of an
// answer's header.
func newClient(cfg HTTPConfig) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig:        cfg.TLS,
			TLSHandshakeTimeout:    3 * time.Second,
			MaxConnsPerHost:        cfg.Concurrency,
			MaxIdleConnsPerHost:    cfg.Concurrency,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxBody,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Admit implements Rail.
func (h *HTTP) Admit(ctx context.Context, organisation models.OrganisationID, n int) int {
	return h.limiter.Take(ctx, organisation, n)
}

// Debit implements Rail.
func (h *HTTP) Debit(ctx context.Context, debits []Debit, report func(i int, r Result)) {
	h.each(len(debits), func(i int) { report(i, h.debit(ctx, debits[i])) })
}

// debit sends one debit. Its result is Invalid if the debit fails Validate, and Unavailable if a
// valid one was not sent.
func (h *HTTP) debit(ctx context.Context, d Debit) Result {
	if err := d.Validate(); err != nil {
		return Result{Status: Invalid, Detail: err.Error()}
	}
	body, err := json.Marshal(debitBody(d))
	if err != nil {
		return Result{Status: Invalid, Detail: err.Error()}
	}
	r, sends := h.exchange(ctx, http.MethodPost, "/debits", body, maxBody, func(status int, answer []byte) Result {
		return readDebitAnswer(d, status, answer)
	})
	switch {
	case r.Status == Unknown && sends == 0:
		r.Status = Unavailable
	case (r.Status == Unavailable || r.Status == Invalid) && sends > 1:
		r.Status = Unknown // the answer is about the second sending; the first may still be processed
	}
	return r
}

// Lookup implements Rail.
func (h *HTTP) Lookup(ctx context.Context, keys []string, report func(i int, r Result)) {
	h.each(len(keys), func(i int) { report(i, h.byKey(ctx, opLookup, keys[i], http.MethodGet, "")) })
}

// Cancel implements Rail.
func (h *HTTP) Cancel(ctx context.Context, keys []string, report func(i int, r Result)) {
	h.each(len(keys), func(i int) { report(i, h.byKey(ctx, opCancel, keys[i], http.MethodPost, "/cancellation")) })
}

// byKey makes the request of an operation on a key: method on /debits/{key}{suffix}.
func (h *HTTP) byKey(ctx context.Context, op operation, key, method, suffix string) Result {
	if err := ValidateKey(key); err != nil {
		return Result{Status: Unknown, Detail: err.Error()}
	}
	path := "/debits/" + url.PathEscape(key) + suffix
	r, _ := h.exchange(ctx, method, path, nil, maxBody, func(status int, answer []byte) Result {
		return readAnswer(op, key, status, answer)
	})
	return r
}

// List implements Rail.
func (h *HTTP) List(ctx context.Context, q ListQuery) (page ListPage, err error) {
	if err := q.Validate(); err != nil {
		return ListPage{}, err
	}
	read := false
	r, _ := h.exchange(ctx, http.MethodGet, "/debits?"+q.values().Encode(), nil, maxListBody,
		func(status int, answer []byte) Result {
			read = true
			page, err = readList(q, status, answer)
			return Result{}
		})
	if !read {
		return ListPage{}, fmt.Errorf("rail: list: %s", r.Detail)
	}
	return page, err
}

// each calls do for 0 to n-1, in at most as many goroutines as there are slots, and waits for all
// calls.
func (h *HTTP) each(n int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, cap(h.slots)) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				do(int(i - 1))
			}
		})
	}
	wg.Wait()
}

// exchange waits for a slot, sends one request and passes the answer, of at most maxAnswer bytes,
// to read. It returns the result of read, or Unknown without an answer. sends is the number of
// times that the request may have been sent: the transport repeats it if a kept connection turns
// out to be closed.
func (h *HTTP) exchange(
	ctx context.Context, method, path string, body []byte, maxAnswer int64,
	read func(status int, answer []byte) Result,
) (r Result, sends int64) {
	if err := h.acquireSlot(ctx); err != nil {
		return Result{Status: Unknown, Detail: "waiting for a slot: " + err.Error()}, 0
	}
	defer func() { <-h.slots }()
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	var connections atomic.Int64
	req, err := h.newRequest(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// From here on bytes may have been sent, even if the write fails.
		GotConn: func(httptrace.GotConnInfo) { connections.Add(1) },
	}), method, path, body)
	if err != nil {
		return Result{Status: Unknown, Detail: err.Error()}, 0
	}
	status, answer, err := h.roundTrip(req, maxAnswer)
	if err != nil {
		return Result{Status: Unknown, Detail: describe(err)}, connections.Load()
	}
	return read(status, answer), connections.Load()
}

// acquireSlot waits for a slot, or fails once ctx ends.
func (h *HTTP) acquireSlot(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := ctx.Err() // select picks at random if both cases are ready
	if err != nil {
		<-h.slots
	}
	return err
}

func (h *HTTP) newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("rail: make the request: %w", err)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	// Every request may be repeated without harm. The nil header makes the transport send the
	// request again if a kept connection turns out to be closed. The header itself is not sent.
	req.Header["Idempotency-Key"] = nil
	h.key.Sign(req, body, h.now())
	tracing.Inject(ctx, req.Header)
	return req, nil
}

// roundTrip sends a request and reads the whole answer, of at most maxAnswer bytes.
func (h *HTTP) roundTrip(req *http.Request, maxAnswer int64) (status int, body []byte, err error) {
	res, err := h.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && int64(len(body)) > maxAnswer {
		err = errors.New("the answer is too long")
	}
	return res.StatusCode, body, err
}

// describe returns the text of an error without the URL. The caller knows the URL, and it contains
// the key.
func describe(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}
