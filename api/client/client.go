// Package client is the partner's side of the service's API, for Go programs.
//
//	c := client.New(client.Config{BaseURL: base, ClientID: id, ClientSecret: secret})
//	invitation, err := c.CreateInvitation(ctx, site, client.NewInvitation{CustomerReference: "cust-1"}, "")
//
// It fetches and renews access tokens, waits and tries again when it is told to slow down, and turns refusals into
// *Error. It repeats a request whose answer was lost only where that is safe: reads, batch submissions, and requests
// with an idempotency key.
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

// Version is the API version that this client speaks.
const Version = "urn:svc:api:billing:version:v1"

// Config says whom to call, and as whom.
type Config struct {
	BaseURL      string // without a slash at the end
	ClientID     string
	ClientSecret string
	HTTP         *http.Client  // default one with a time-out of 60 s
	MaxRetries   int           // how often a request is tried again; default 8, negative: never
	MaxBackoff   time.Duration // the longest wait before that; default 10 s
}

// Client calls the API. It is safe for concurrent use.
type Client struct {
	cfg Config

	mu      sync.Mutex
	token   string
	renewAt time.Time
}

// New makes a client; nothing is called yet.
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

// Error is a refusal.
type Error struct {
	Status     int
	Faults     []Fault
	TraceID    string        // name it to support
	RetryAfter time.Duration // 0 if the service did not say
}

// Fault is one reason of a refusal.
type Fault struct {
	Code           string `json:"code"` // urn:svc:platform:billing:error:…
	DisplayMessage string `json:"displayMessage"`
	Target         string `json:"target"`  // the field, parameter or header at fault
	Message        string `json:"message"` // instead of the others, under /checkout
}

// Error says what was refused, and why.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "client: %d %s", e.Status, http.StatusText(e.Status))
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "; %s", strings.TrimSpace(f.Target+" "+f.DisplayMessage+f.Message))
	}
	fmt.Fprintf(&b, " (trace %s)", e.TraceID)
	return b.String()
}

// Has reports whether err is a refusal with a fault whose code ends so ("batches:batch-reference-conflict").
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

// request is one call of the API.
type request struct {
	method, path string
	body         any         // sent as JSON; nil for none
	header       http.Header // beside the usual ones
	repeatable   bool        // safe to send again when the answer was lost
}

// response is the answer to it. Data and trace id are the envelope's.
type response struct {
	status int
	header http.Header
	data   json.RawMessage
	trace  string
}

// do calls the API, again where that is called for, and decodes the answer's data into out, which may be nil.
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
		wait, again := c.mayRepeat(r, err, attempt)
		if !again {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// mayRepeat decides on another try, and how long to wait before it.
func (c *Client) mayRepeat(r request, err error, attempt int) (time.Duration, bool) {
	if attempt >= c.cfg.MaxRetries {
		return 0, false
	}
	backoff := min(100*time.Millisecond<<min(attempt, 10), c.cfg.MaxBackoff)
	var refused *Error
	switch {
	case !errors.As(err, &refused): // no answer came
		return backoff, r.repeatable
	case refused.Status == http.StatusUnauthorized:
		c.forgetToken()
		return 0, attempt == 0
	case refused.Status == http.StatusTooManyRequests: // nothing was done; of a quota, waiting alone may not help
		return min(max(refused.RetryAfter, backoff), c.cfg.MaxBackoff), refused.RetryAfter > 0
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
	if !strings.HasPrefix(target, "http") { // a link of the service's is followed as it is
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

// exchange sends a request and reads the whole answer. A refusal is an *Error.
func (c *Client) exchange(req *http.Request) (response, error) {
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return response{}, fmt.Errorf("client: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return response{}, fmt.Errorf("client: read the answer: %w", err)
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
		return answer, fmt.Errorf("client: the answer is not JSON: %w", err)
	}
	answer.data, answer.trace = envelope.Data, envelope.TraceID
	return answer, nil
}

// renewBefore is how long before its end a token is replaced.
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

// path joins segments into a path, each percent-encoded as a whole.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}
