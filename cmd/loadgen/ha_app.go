package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"partnerbilling/api/client"
)

// customerApp is a client of the API for the app in which customers sign up and pay. It fetches its
// access tokens itself. It is safe for concurrent use.
type customerApp struct {
	base, id, secret string // base URL of the service; credentials of the app
	http             *http.Client

	mu      sync.Mutex
	token   string
	fetched time.Time // when the token was fetched
}

// maxTokenAge is how long the customer app uses an access token.
const maxTokenAge = 30 * time.Minute

// pay starts the payment of the payment intent with the code, by the customer with the agreement.
// The error of a refusal wraps a *client.Error.
func (a *customerApp) pay(ctx context.Context, code, agreement string) error {
	return a.act(ctx, "/customer-app/payment-intents/"+code+"/transactions", agreement)
}

// signUp completes the sign-up of the invitation with the token, by the customer with the
// agreement. The error of a refusal wraps a *client.Error.
func (a *customerApp) signUp(ctx context.Context, token, agreement string) error {
	return a.act(ctx, "/customer-app/signups/"+token+"/completion", agreement)
}

// act makes a POST request in the name of the customer with the agreement.
func (a *customerApp) act(ctx context.Context, path, agreement string) error {
	token, err := a.accessToken(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"customerId": agreement, "agreementId": agreement})
	if err != nil {
		return err
	}
	_, err = a.post(ctx, path, "application/json", "Bearer "+token, body)
	return err
}

// accessToken returns an access token. It fetches a new one if the last one is too old.
func (a *customerApp) accessToken(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token != "" && time.Since(a.fetched) < maxTokenAge {
		return a.token, nil
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {a.id}, "client_secret": {a.secret}}
	answer, err := a.post(ctx, "/oauth2/token", "application/x-www-form-urlencoded", "", []byte(form.Encode()))
	if err != nil {
		return "", err
	}
	var granted struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(answer, &granted); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	a.token, a.fetched = granted.Token, time.Now()
	return a.token, nil
}

// post makes a POST request and returns the body of the answer. For a status of 400 or more, the
// error wraps a *client.Error with that status.
func (a *customerApp) post(ctx context.Context, path, contentType, authorization string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = errors.Join(&client.Error{Status: resp.StatusCode}, errors.New(string(answer)))
	}
	return answer, err
}
