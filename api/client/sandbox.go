package client

import (
	"context"
	"net/http"
	"time"
)

// SignUp simulates a customer of the sandbox who accepts an invitation, and returns the link.
// behaviour selects how the customer's account answers debits, such as "insufficientFunds"; with ""
// they succeed.
func (c *Client) SignUp(ctx context.Context, site, reference, behaviour string) (CustomerLink, error) {
	var out CustomerLink
	body := map[string]string{}
	if behaviour != "" {
		body["behaviour"] = behaviour
	}
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("sandbox", "sites", site, "customers", reference, "signup"), body: body,
	}, &out)
	return out, err
}

// Clock returns the time of the sandbox's clock in Unix ms, and by how much it was advanced.
func (c *Client) Clock(ctx context.Context) (now int64, advanced time.Duration, err error) {
	var out struct {
		Now        int64 `json:"now"`
		AdvancedMs int64 `json:"advancedMs"`
	}
	_, err = c.do(ctx, request{method: http.MethodGet, path: "/sandbox/clock", repeatable: true}, &out)
	return out.Now, time.Duration(out.AdvancedMs) * time.Millisecond, err
}

// AdvanceClock advances the sandbox's clock, and returns its new time in Unix ms.
func (c *Client) AdvanceClock(ctx context.Context, by time.Duration) (int64, error) {
	var out struct {
		Now int64 `json:"now"`
	}
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: "/sandbox/clock", body: map[string]int64{"advanceMs": by.Milliseconds()},
	}, &out)
	return out.Now, err
}
