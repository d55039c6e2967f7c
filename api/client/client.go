// Package client is a Go client for the service's partner API.
//
//	c := client.New(client.Config{BaseURL: base, ClientID: id, ClientSecret: secret})
//	in := client.NewInvitation{CustomerReference: "cust-1"}
//	invitation, err := c.CreateInvitation(ctx, site, in, "")
//
// The client obtains and renews access tokens, backs off when it is rate-limited, and returns error
// responses as *Error. It repeats a request without a response only if that is safe: reads, batch
// submissions, and requests with an idempotency key.
package client

import (
	"bytes"
	"context"
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

// Version is the API version of this client.
const Version = "urn:svc:api:billing:version:v1"

// Config configures a client.
type Config struct {
	BaseURL      string // without trailing slash
	ClientID     string
	ClientSecret string
	HTTP         *http.Client  // default: a client with a time-out of 60 s
	MaxRetries   int           // maximum retries of a request; default 8, negative: none
	MaxBackoff   time.Duration // maximum wait before a retry; default 10 s
}

// Client calls the API. It is safe for concurrent use.
type Client struct {
	cfg Config

	mu      sync.Mutex
	token   string
	renewAt time.Time
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
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	return &Client{cfg: cfg}
}

// Error is an error response of the API.
type Error struct {
	Status     int
	Faults     []Fault
	TraceID    string        // identifies the request for support
	RetryAfter time.Duration // 0 if unknown
}

// Fault is a reason for an error response.
type Fault struct {
	Code           string `json:"code"` // urn:svc:platform:billing:error:…
	DisplayMessage string `json:"displayMessage"`
	Target         string `json:"target"`  // the faulty field, parameter or header
	Message        string `json:"message"` // under /checkout, instead of the other fields
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

// Has reports whether err is an *Error with a fault whose code ends with code, such as
// "batches:batch-reference-conflict".
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
}

// response is a successful response. data and trace come from the envelope.
type response struct {
	status int
	header http.Header
	data   json.RawMessage
	trace  string
}

// do calls the API with retries, and decodes the response's data into out. out may be nil.
func (c *Client) do(ctx context.Context, r request, out any) (response, error) {
	var payload []byte
	if r.body != nil {
		var err error
		if payload, err = json.Marshal(r.body); err != nil {
			return response{}, fmt.Errorf("client: encode: %w", err)
		}
	}
	for attempt := 0; ; attempt++ {
		answer, err := c.once(ctx, r, payload)
		if err == nil {
			if out != nil && len(answer.data) > 0 {
				err = json.Unmarshal(answer.data, out)
			}
			return answer, err
		}
		wait, retry := c.retryDelay(r, err, attempt)
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

// retryDelay decides whether to retry a failed request, and returns the delay before the retry.
func (c *Client) retryDelay(r request, err error, attempt int) (time.Duration, bool) {
	if attempt >= c.cfg.MaxRetries {
		return 0, false
	}
	backoff := min(100*time.Millisecond<<min(attempt, 10), c.cfg.MaxBackoff)
	var refused *Error
	switch {
	case !errors.As(err, &refused): // no response
		return backoff, r.repeatable
	case refused.Status == http.StatusUnauthorized:
		c.forgetToken()
		return 0, attempt == 0
	case refused.Status == http.StatusTooManyRequests: // no effect; a long wait is for a quota that may not free itself
		return max(refused.RetryAfter, backoff), 0 < refused.RetryAfter && refused.RetryAfter <= c.cfg.MaxBackoff
	case refused.Status >= 500:
		return min(max(refused.RetryAfter, backoff), c.cfg.MaxBackoff), r.repeatable
	default:
		return 0, false
	}
}

func (c *Client) once(ctx context.Context, r request, payload []byte) (response, error) {
	token, err := c.accessToken(ctx)
	if err != nil {
		return response{}, err
	}
	target := r.path
	if !strings.HasPrefix(target, "http") { // the links of pages are absolute URLs
		target = c.cfg.BaseURL + r.path
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(payload))
	if err != nil {
		return response{}, fmt.Errorf("client: %w", err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Svc-Api-Version", Version)
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.exchange(req)
}

// exchange sends a request and reads the whole response. It returns an error response as *Error.
func (c *Client) exchange(req *http.Request) (response, error) {
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return response{}, fmt.Errorf("client: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return response{}, fmt.Errorf("client: read the response: %w", err)
	}
	answer := response{status: resp.StatusCode, header: resp.Header}
	var envelope struct {
		Data    json.RawMessage `json:"data"`
		Errors  []Fault         `json:"errors"`
		TraceID string          `json:"traceId"`
	}
	err = json.Unmarshal(body, &envelope)
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return answer, &Error{
			Status: resp.StatusCode, Faults: envelope.Errors, TraceID: envelope.TraceID,
			RetryAfter: time.Duration(seconds) * time.Second,
		}
	case resp.StatusCode == http.StatusNotModified:
		return answer, nil
	case err != nil:
		return answer, fmt.Errorf("client: the response is not JSON: %w", err)
	}
	answer.data, answer.trace = envelope.Data, envelope.TraceID
	return answer, nil
}

// renewBefore is the time before a token's expiry at which the client renews it.
const renewBefore = time.Minute

func (c *Client) accessToken(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && time.Until(c.renewAt) > 0 {
		return c.token, nil
	}
	form := strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.BaseURL+"/oauth2/token", form)
	if err != nil {
		return "", fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(c.cfg.ClientID), url.QueryEscape(c.cfg.ClientSecret))
	began := time.Now()
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return "", fmt.Errorf("client: token: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
		Error       string `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("client: token: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", &Error{Status: resp.StatusCode, Faults: []Fault{{Code: answer.Error, DisplayMessage: answer.Error}}}
	}
	c.token = answer.AccessToken
	c.renewAt = began.Add(time.Duration(answer.ExpiresIn)*time.Second - renewBefore)
	return c.token, nil
}

func (c *Client) forgetToken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = ""
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
