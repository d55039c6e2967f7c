// Package client is a Go client for the service's partner API.
//
//	c := client.New(client.Config{BaseURL: base, ClientID: id, ClientSecret: secret})
//	in := client.NewInvitation{CustomerReference: "cust-1"}
//	invitation, err := c.CreateInvitation(ctx, site, in, "")
//
// The client obtains and renews access tokens, backs off when it is rate-limited, and returns error
// responses as *Error. It follows no redirects. It repeats a request without a response, or with a
// 5xx, only if that is safe:
//
//   - reads
//   - submissions, validations, cancellations and retries of batches
//   - revocations of customers, and invitations that are shown again
//   - requests with an idempotency key, which it adds where the API accepts one
//
// Paged lists are iterators over all items. [WebhookHandler] verifies webhooks and decodes them.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Version is the API version of this client, which it sends in the header Svc-Api-Version. Requests
// for access tokens and streams do not have the header.
const Version = "urn:svc:api:billing:version:v1"

// Config configures a client.
type Config struct {
	BaseURL      string // without trailing slash
	ClientID     string
	ClientSecret string
	HTTP         *http.Client  // copied; its CheckRedirect is not used; default: a time-out of 60 s
	MaxRetries   int           // maximum retries of a request; default 8, negative: none
	MaxBackoff   time.Duration // maximum wait before a retry; default 10 s
}

// Client calls the API. It is safe for concurrent use.
type Client struct {
	cfg Config

	mu      sync.Mutex
	token   string
	renewAt time.Time
	renewal *renewal // in progress; nil: none
}

// New returns a client. It sends no request.
func New(cfg Config) *Client {
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Timeout: time.Minute}
	}
	if cfg.MaxRetries == 0 {
		cfg.MaxRetries = 8
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = 10 * time.Second
	}
	own := *cfg.HTTP
	// A redirect would turn a POST into a GET, whose success says nothing about the POST.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.HTTP = &own
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	return &Client{cfg: cfg}
}

// Error is an error response of the API.
type Error struct {
	Status     int
	Faults     []Fault
	TraceID    string        // identifies the request for support
	RetryAfter time.Duration // of the header; 0 if absent
}

// Fault is a reason for an error response. Under /checkout it has only a Message. Elsewhere it has
// no Message. For a request for an access token, Code and DisplayMessage are the OAuth error, such
// as "invalid_client".
type Fault struct {
	Code           string `json:"code"`           // urn:svc:platform:billing:error:…
	DisplayMessage string `json:"displayMessage"` // for people
	Target         string `json:"target"`         // the faulty field, parameter or header; "" for none
	Message        string `json:"message"`        // for people; only under /checkout
}

// Error returns the status with all faults.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "client: %d %s", e.Status, http.StatusText(e.Status))
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "; %s", strings.TrimSpace(f.Target+" "+f.DisplayMessage+f.Message))
	}
	fmt.Fprintf(&b, " (trace %s)", e.TraceID)
	return b.String()
}

// Has reports whether err is an *Error with a fault whose code ends with a colon and code, such as
// "batches:batch-reference-conflict". It never finds an OAuth error, whose code has no colon.
func Has(err error, code string) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, f := range e.Faults {
		if strings.HasSuffix(f.Code, ":"+code) {
			return true
		}
	}
	return false
}

// request is a call of the API.
type request struct {
	method, path string
	body         any         // sent as JSON; nil for none
	header       http.Header // additional headers
	repeatable   bool        // safe to repeat after a lost response
	raw          bool        // a success is not JSON
}

// response is a response of the API. A successful one has the data and the trace id of its
// envelope, and no body. A raw one and an error response have only a body.
type response struct {
	status int
	header http.Header
	data   json.RawMessage
	trace  string
	body   []byte
}

// idempotent returns a header with the idempotency key, or with a random one for "".
func idempotent(key string) http.Header {
	if key == "" {
		key = rand.Text()
	}
	return http.Header{"Idempotency-Key": {key}}
}

// do calls the API with retries, and decodes the response's data into out. out may be nil.
func (c *Client) do(ctx context.Context, r request, out any) (response, error) {
	var payload []byte
	if err := r.checkText(); err != nil {
		return response{}, err
	}
	if r.body != nil {
		var err error
		if payload, err = json.Marshal(r.body); err != nil {
			return response{}, fmt.Errorf("client: encode: %w", err)
		}
	}
	renewed := false
	for attempt := 0; ; attempt++ {
		answer, token, err := c.once(ctx, r, payload)
		if err == nil {
			return answer, answer.decode(out)
		}
		wait, retry := c.retryDelay(r, err, attempt)
		if !renewed && attempt < c.cfg.MaxRetries && isTokenRefused(err) {
			c.forgetToken(token)
			renewed, wait, retry = true, 0, true
		}
		if !retry {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// decode decodes the data into out, unless out is nil.
func (answer response) decode(out any) error {
	if out == nil {
		return nil
	}
	if len(answer.data) == 0 || string(answer.data) == "null" {
		return fmt.Errorf("client: the response has no data (status %d)", answer.status)
	}
	return json.Unmarshal(answer.data, out)
}

// isTokenRefused reports whether an error is a 401 to a request with an access token. A 401 to the
// request for the token itself does not count: there the service refuses the credentials.
func isTokenRefused(err error) bool {
	var credentials *tokenError
	var refused *Error
	return errors.As(err, &refused) && refused.Status == http.StatusUnauthorized && !errors.As(err, &credentials)
}

// retryDelay decides whether to retry a failed request, and returns the delay before the retry.
// attempt counts the earlier retries.
func (c *Client) retryDelay(r request, err error, attempt int) (time.Duration, bool) {
	if attempt >= c.cfg.MaxRetries {
		return 0, false
	}
	backoff := min(100*time.Millisecond<<min(attempt, 10), c.cfg.MaxBackoff)
	var refused *Error
	switch {
	case errors.Is(err, ErrNotUTF8):
		return 0, false
	case !errors.As(err, &refused): // no response, or an unreadable one
		return backoff, r.repeatable
	case refused.Status == http.StatusConflict: // the first request with the idempotency key may still run
		keyed := r.header.Get("Idempotency-Key") != ""
		return min(max(refused.RetryAfter, backoff), c.cfg.MaxBackoff), keyed && refused.RetryAfter > 0
	case refused.Status == http.StatusTooManyRequests: // a long wait is for a quota, which may stay exhausted
		return max(refused.RetryAfter, backoff), 0 < refused.RetryAfter && refused.RetryAfter <= c.cfg.MaxBackoff
	case refused.Status >= 500:
		return min(max(refused.RetryAfter, backoff), c.cfg.MaxBackoff), r.repeatable
	default:
		return 0, false
	}
}

// once makes a request without retries. It also returns the access token of the request.
func (c *Client) once(ctx context.Context, r request, payload []byte) (answer response, token string, err error) {
	if token, err = c.accessToken(ctx); err != nil {
		return response{}, "", err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.cfg.BaseURL+r.path, bytes.NewReader(payload))
	if err != nil {
		return response{}, token, fmt.Errorf("client: %w", err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Svc-Api-Version", Version)
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	answer, err = c.exchange(req, r.raw)
	return answer, token, err
}

// exchange sends a request and reads the whole response. It returns an error response as *Error.
func (c *Client) exchange(req *http.Request, raw bool) (response, error) {
	answer, err := c.roundTrip(req)
	if err != nil {
		return response{}, fmt.Errorf("client: %w", err)
	}
	switch {
	case answer.status == http.StatusNotModified:
		return answer, nil
	case answer.status >= http.StatusMultipleChoices:
		return answer, refusal(answer)
	case raw:
		return answer, nil
	}
	var envelope struct {
		Data    json.RawMessage `json:"data"`
		TraceID string          `json:"traceId"`
	}
	if err := decode("the response", answer.body, &envelope); err != nil {
		return answer, err
	}
	answer.data, answer.trace, answer.body = envelope.Data, envelope.TraceID, nil
	return answer, nil
}

// roundTrip sends a request and reads the whole response. A response that breaks off is a
// *url.Error, as is a request without a response.
func (c *Client) roundTrip(req *http.Request) (response, error) {
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return response{}, &url.Error{
			Op: "read the response of " + req.Method, URL: req.URL.Redacted(), Err: err,
		}
	}
	return response{status: resp.StatusCode, header: resp.Header, body: body}, nil
}

// refusal returns an error response as *Error. A body that is not JSON comes from a proxy in
// between, and yields no faults.
func refusal(answer response) *Error {
	var envelope struct {
		Errors  []Fault `json:"errors"`
		TraceID string  `json:"traceId"`
	}
	_ = json.Unmarshal(answer.body, &envelope)
	return &Error{
		Status: answer.status, Faults: envelope.Errors, TraceID: envelope.TraceID,
		RetryAfter: headerRetryAfter(answer.header),
	}
}

// headerRetryAfter returns the wait that a response asks for, 0 if it names none.
func headerRetryAfter(header http.Header) time.Duration {
	seconds, _ := strconv.Atoi(header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second
}

// path joins percent-encoded segments into a path.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}
