package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// renewBefore is the time before a token's expiry at which the client renews it.
const renewBefore = time.Minute

// renewal is a request for an access token, which concurrent callers share. Closing done publishes
// the other fields.
type renewal struct {
	done  chan struct{}
	token string
	err   error
}

// tokenError is an error of a request for an access token.
type tokenError struct{ err error }

// Error implements error.
func (e *tokenError) Error() string { return e.err.Error() }

// Unwrap returns the cause, such as an *Error.
func (e *tokenError) Unwrap() error { return e.err }

// accessToken returns a valid access token. Concurrent callers share one request for a new token,
// which does not end with any caller's context. Errors are of type *tokenError.
func (c *Client) accessToken(ctx context.Context) (string, error) {
	c.mu.Lock()
	if c.token != "" && time.Until(c.renewAt) > 0 {
		defer c.mu.Unlock()
		return c.token, nil
	}
	r := c.renewal
	if r == nil {
		r = &renewal{done: make(chan struct{})}
		c.renewal = r
		go c.renew(context.WithoutCancel(ctx), r)
	}
	c.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		return "", &tokenError{fmt.Errorf("client: token: %w", ctx.Err())}
	}
	if r.err != nil {
		return "", &tokenError{r.err}
	}
	return r.token, nil
}

// renewTimeout bounds a request for an access token, even if Config.HTTP has no time-out.
const renewTimeout = time.Minute

// renew obtains a new access token and completes r.
func (c *Client) renew(ctx context.Context, r *renewal) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	// By the wall clock: the monotonic clock stands still while a computer sleeps.
	began := time.Now().Round(0)
	var lifetime time.Duration
	r.token, lifetime, r.err = c.requestToken(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.err == nil {
		c.token, c.renewAt = r.token, began.Add(lifetime-renewBefore)
	}
	c.renewal = nil
	close(r.done)
}

// requestToken obtains an access token and its lifetime from the service.
func (c *Client) requestToken(ctx context.Context) (token string, lifetime time.Duration, err error) {
	form := strings.NewReader(url.Values{"grant_type": {"client_credentials"}}.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.BaseURL+"/oauth2/token", form)
	if err != nil {
		return "", 0, fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(c.cfg.ClientID), url.QueryEscape(c.cfg.ClientSecret))
	answer, err := c.roundTrip(req)
	if err != nil {
		return "", 0, fmt.Errorf("client: token: %w", err)
	}
	var issued struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
		Error       string `json:"error"`
	}
	err = json.Unmarshal(answer.body, &issued)
	if answer.status != http.StatusOK {
		refused := &Error{Status: answer.status, RetryAfter: headerRetryAfter(answer.header)}
		if issued.Error != "" {
			refused.Faults = []Fault{{Code: issued.Error, DisplayMessage: issued.Error}}
		}
		return "", 0, refused
	}
	if err != nil {
		return "", 0, fmt.Errorf("client: token: %w", err)
	}
	if issued.AccessToken == "" {
		return "", 0, errors.New("client: token: the response has no access_token")
	}
	return issued.AccessToken, time.Duration(issued.ExpiresIn) * time.Second, nil
}

// Authenticate obtains an access token unless the client holds a valid one. It does not retry, so
// that it finds out at once whether the service answers and accepts the credentials.
func (c *Client) Authenticate(ctx context.Context) error {
	_, err := c.accessToken(ctx)
	return err
}

// forgetToken makes the next request obtain a new access token, unless the client has renewed the
// refused one already.
func (c *Client) forgetToken(refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == refused {
		c.token = ""
	}
}
