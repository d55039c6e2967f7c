package client

import (
	"context"
	"net/http"
	"time"
)

// SignUp lets a customer of the sandbox accept its invitation, with an account that behaves as told ("" pays).
func (c *Client) SignUp(ctx context.Context, site, reference, behaviour string) (Customer, error) {
	var out Customer
	body := map[string]string{}
	if behaviour != "" {
		body["behaviour"] = behaviour
	}
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("sandbox", "sites", site, "customers", reference, "signup"), body: body,
	}, &out)
	return out, err
}

// AdvanceClock moves the sandbox's clock forward and returns the time it shows, in Unix ms.
func (c *Client) AdvanceClock(ctx context.Context, by time.Duration) (int64, error) {
	var out struct {
		Now int64 `json:"now"`
	}
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: "/sandbox/clock", body: map[string]int64{"advanceMs": by.Milliseconds()},
	}, &out)
	return out.Now, err
}
