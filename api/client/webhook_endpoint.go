package client

import (
	"context"
	"net/http"
)

// DefaultEndpoint is the name of the endpoint for Sites without an endpoint of their own.
const DefaultEndpoint = "default"

// WebhookEndpoint is a configured endpoint. Times are in Unix ms.
type WebhookEndpoint struct {
	Endpoint   string   `json:"endpoint"` // DefaultEndpoint or a siteId
	URL        string   `json:"url"`
	Events     []string `json:"events"` // the types that it gets
	State      string   `json:"state"`  // active, paused or disabled
	CreatedAt  int64    `json:"createdAt"`
	UpdatedAt  int64    `json:"updatedAt"`
	DisabledAt int64    `json:"disabledAt,omitempty"` // 0: not disabled
	RetryAt    int64    `json:"retryAt,omitempty"`    // the next probe of a paused endpoint
	// Secret signs all webhooks of the organisation. Only the PUT of the organisation's first
	// endpoint returns it.
	Secret string `json:"secret,omitempty"`
}

// PutWebhookEndpoint sets the URL for the webhooks of a Site, or of all Sites without an endpoint
// of their own (DefaultEndpoint). The endpoint gets EventTransactionStatus and the types in events.
// For the organisation's first endpoint the result has the signing secret, which is never shown
// again.
func (c *Client) PutWebhookEndpoint(
	ctx context.Context, name, url string, events ...string,
) (WebhookEndpoint, error) {
	body := map[string]any{"url": url}
	if len(events) > 0 {
		types := []string{EventTransactionStatus}
		for _, e := range events {
			if e != EventTransactionStatus {
				types = append(types, e)
			}
		}
		body["events"] = types
	}
	var out WebhookEndpoint
	_, err := c.do(ctx, request{method: http.MethodPut, path: path("webhooks", "endpoints", name), body: body}, &out)
	return out, err
}

// WebhookEndpoint returns an endpoint.
func (c *Client) WebhookEndpoint(ctx context.Context, name string) (WebhookEndpoint, error) {
	var out WebhookEndpoint
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("webhooks", "endpoints", name), repeatable: true,
	}, &out)
	return out, err
}

// WebhookEndpoints returns the organisation's endpoints, each with only Endpoint, URL and Events.
func (c *Client) WebhookEndpoints(ctx context.Context) ([]WebhookEndpoint, error) {
	var out struct {
		Items []WebhookEndpoint `json:"items"`
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: path("webhooks", "endpoints"), repeatable: true}, &out)
	return out.Items, err
}

// DeleteWebhookEndpoint removes an endpoint. The client does not repeat a call without a response,
// because the endpoint may have been set again meanwhile.
func (c *Client) DeleteWebhookEndpoint(ctx context.Context, name string) error {
	_, err := c.do(ctx, request{
		method: http.MethodDelete, path: path("webhooks", "endpoints", name),
	}, nil)
	return err
}

// WebhookTest is the attempt to deliver a test event.
type WebhookTest struct {
	IdempotencyKey string `json:"idempotencyKey"`
	Status         string `json:"status"` // delivered or failed
	WebhookAttempt
}

// TestWebhookEndpoint sends a signed test event to an endpoint, and returns the attempt.
func (c *Client) TestWebhookEndpoint(ctx context.Context, name string) (WebhookTest, error) {
	var out WebhookTest
	_, err := c.do(ctx, request{method: http.MethodPost, path: path("webhooks", "endpoints", name, "test")}, &out)
	return out, err
}

// WebhookRotation is a rotation of the signing secret. Times are in Unix ms.
type WebhookRotation struct {
	Secret     string `json:"secret"`     // the next secret
	ActivateAt int64  `json:"activateAt"` // when x-svc-signature moves to it
	OverlapTo  int64  `json:"overlapTo"`  // until then, webhook-signature has a signature of each secret
}

// RotateWebhookSecret creates the next signing secret. activateAt is in Unix ms: a past time, such
// as 0, means now. nil means in 24 hours.
func (c *Client) RotateWebhookSecret(ctx context.Context, activateAt *int64) (WebhookRotation, error) {
	body := map[string]int64{}
	if activateAt != nil {
		body["activateAt"] = *activateAt
	}
	var out WebhookRotation
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("webhooks", "secret", "rotation"), body: body,
	}, &out)
	return out, err
}
