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

// SignatureHeader is the header of a notification that proves its origin.
const SignatureHeader = "X-Svc-Signature"

// ErrSignature says that a notification does not come from the service, or was changed on its way.
var ErrSignature = errors.New("client: the signature does not fit the body")

// Notification is a final status, as the service pushes it. A notification may come more than once; all of one event have the
// same IdempotencyKey.
type Notification struct {
	IdempotencyKey string `json:"idempotencyKey"`
	SiteID         struct {
		ID string `json:"id"`
	} `json:"siteId"`
	PaymentIntentID              string            `json:"paymentIntentId"`
	TransactionID                string            `json:"transactionId"`     // "" if nobody began to pay
	TransactionStatus            string            `json:"transactionStatus"` // Settled, Declined, Failed, Cancelled or Expired
	TransactionStatusDescription string            `json:"transactionStatusDescription"`
	TransactionUpdated           int64             `json:"transactionUpdated"` // Unix ms; 0 if nobody began to pay
	OrderID                      string            `json:"orderId"`
	LineItems                    []json.RawMessage `json:"lineItems"`
	AmountPaid                   int64             `json:"amountPaid"` // minor units
}

// VerifyNotification checks the signature of a notification's raw body, exactly as it came, and reads it. The signature is the
// value of SignatureHeader; the secret is as the service showed it, whsec_ and all.
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

// DefaultEndpoint is the name of the endpoint for Sites without one of their own.
const DefaultEndpoint = "default"

// PutWebhookEndpoint says where notifications go: those of one Site, or of all that have no endpoint of their own
// (DefaultEndpoint). With the organisation's first endpoint the answer has its signing secret; it is shown once.
func (c *Client) PutWebhookEndpoint(ctx context.Context, name, url string) (secret string, err error) {
	var out struct {
		Secret string `json:"secret"`
	}
	_, err = c.do(ctx, request{
		method: http.MethodPut, path: path("webhooks", "endpoints", name), body: map[string]string{"url": url},
	}, &out)
	return out.Secret, err
}

// Delivery is a notification as an endpoint would get it.
type Delivery struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Listen streams the organisation's notifications, for development: no endpoint needed. It ends with the context, or with an
// error when the stream does; what comes in between is not made up for.
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
