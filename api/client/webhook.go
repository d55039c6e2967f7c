package client

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
)

// SignatureHeader is the header with a notification's signature.
const SignatureHeader = "X-Svc-Signature"

// ErrSignature reports a notification that the service did not sign, or that was changed in
// transit.
var ErrSignature = errors.New("client: the signature does not match the body")

// Notification is a transaction status that the service pushes. A notification may arrive more than
// once, always with the same IdempotencyKey.
type Notification struct {
	IdempotencyKey string `json:"idempotencyKey"`
	SiteID         struct {
		ID string `json:"id"`
	} `json:"siteId"`
	PaymentIntentID              string `json:"paymentIntentId"`
	TransactionID                string `json:"transactionId"`     // "" if no customer started to pay
	TransactionStatus            string `json:"transactionStatus"` // such as Settled
	TransactionStatusDescription string `json:"transactionStatusDescription"`
	// Unix ms; 0 if no customer started to pay
	TransactionUpdated int64             `json:"transactionUpdated"`
	OrderID            string            `json:"orderId"`
	LineItems          []json.RawMessage `json:"lineItems"`
	AmountPaid         int64             `json:"amountPaid"` // minor units
}

// VerifyNotification verifies the signature of a notification and decodes it. body is the unchanged
// request body, and signature the value of SignatureHeader. secret is the whole secret as the
// service returned it, including whsec_.
func VerifyNotification(secret, signature string, body []byte) (Notification, error) {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	given, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !hmac.Equal(given, mac.Sum(nil)) {
		return Notification{}, ErrSignature
	}
	var envelope struct {
		Data Notification `json:"data"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return Notification{}, fmt.Errorf("client: notification: %w", err)
	}
	return envelope.Data, nil
}

// DefaultEndpoint is the name of the endpoint for Sites without an endpoint of their own.
const DefaultEndpoint = "default"

// PutWebhookEndpoint sets the URL for the notifications of a Site, or of all Sites without an
// endpoint of their own (DefaultEndpoint). For the organisation's first endpoint it returns the
// signing secret, which is never shown again.
func (c *Client) PutWebhookEndpoint(ctx context.Context, name, url string) (secret string, err error) {
	var out struct {
		Secret string `json:"secret"`
	}
	_, err = c.do(ctx, request{
		method: http.MethodPut, path: path("webhooks", "endpoints", name), body: map[string]string{"url": url},
	}, &out)
	return out.Secret, err
}

// Delivery is a notification as an endpoint would receive it.
type Delivery struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Listen streams the organisation's notifications for development, without an endpoint. It ends
// with an error when ctx or the stream ends. It does not deliver notifications that occurred while
// it was not connected.
func (c *Client) Listen(ctx context.Context) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		stream, err := c.openStream(ctx)
		if err != nil {
			yield(Delivery{}, err)
			return
		}
		defer func() { _ = stream.Body.Close() }()
		lines := bufio.NewScanner(stream.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var d Delivery
			if err := json.Unmarshal([]byte(data), &d); !yield(d, err) || err != nil {
				return
			}
		}
		yield(Delivery{}, errors.Join(fmt.Errorf("client: the stream has ended: %w", ctx.Err()), lines.Err()))
	}
}

func (c *Client) openStream(ctx context.Context) (*http.Response, error) {
	token, err := c.accessToken(ctx)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.BaseURL+"/webhooks/listen", nil)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	endless := *c.cfg.HTTP
	endless.Timeout = 0
	resp, err := endless.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: listen: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, &Error{Status: resp.StatusCode}
	}
	return resp, nil
}
