package client

import (
	"context"
	"iter"
	"net/http"
)

// NewInvitation is an invitation to create.
type NewInvitation struct {
	CustomerReference string `json:"customerReference"`
	ExpiresAt         int64  `json:"expiresAt,omitempty"` // Unix ms; 0: in seven days
}

// Invitation is an invitation with its sign-up link.
type Invitation struct {
	CustomerReference string `json:"customerReference"`
	State             string `json:"state"`
	SignupURL         string `json:"signupUrl"` // deliver it to the customer
	InvitedAt         int64  `json:"invitedAt"` // Unix ms
	ExpiresAt         int64  `json:"expiresAt"` // Unix ms
	TraceID           string `json:"-"`         // for Trace; "" from ResendInvitation
}

// CustomerLink is a customer link with its state.
type CustomerLink struct {
	CustomerReference string `json:"customerReference"`
	State             string `json:"state"`               // invited, linked, expired or revoked
	InvitedAt         int64  `json:"invitedAt"`           // Unix ms
	ExpiresAt         int64  `json:"expiresAt,omitempty"` // Unix ms; 0 unless invited
	LinkedAt          int64  `json:"linkedAt,omitempty"`  // Unix ms; 0 unless linked
}

// CustomerFilter selects customer links of a list. The zero value selects all.
type CustomerFilter struct {
	State       string
	InvitedFrom int64 // Unix ms, inclusive
	InvitedTo   int64 // Unix ms, inclusive
	Limit       int   // items per page; 0: the API's default
}

// CreateInvitation creates an invitation with a sign-up link. The client retries the request with
// the idempotency key, or with a random one for "". A caller with retries of its own passes the
// same key each time.
func (c *Client) CreateInvitation(
	ctx context.Context, site string, in NewInvitation, idempotencyKey string,
) (Invitation, error) {
	var out Invitation
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "customers", "invitations"), body: in,
		header: idempotent(idempotencyKey), repeatable: true,
	}, &out)
	out.TraceID = answer.trace
	return out, err
}

// Customer returns the newest link of a customer reference.
func (c *Client) Customer(ctx context.Context, site, reference string) (CustomerLink, error) {
	var out CustomerLink
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "customers", reference), repeatable: true,
	}, &out)
	return out, err
}

// RevokeCustomer revokes the newest link of a customer reference, and returns it.
func (c *Client) RevokeCustomer(ctx context.Context, site, reference string) (CustomerLink, error) {
	var out CustomerLink
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "customers", reference, "revocation"),
		repeatable: true,
	}, &out)
	return out, err
}

// ResendInvitation returns the live invitation of a customer reference with its sign-up link, for
// the caller to deliver again. The service sends nothing to the customer.
func (c *Client) ResendInvitation(ctx context.Context, site, reference string) (Invitation, error) {
	var out Invitation
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "customers", reference, "invitation-link"),
		repeatable: true,
	}, &out)
	return out, err
}

// Customers iterates over the customer links of a Site, newest first. It fetches further pages as
// needed.
func (c *Client) Customers(ctx context.Context, site string, filter CustomerFilter) iter.Seq2[CustomerLink, error] {
	return list[CustomerLink](ctx, c, path("billing", "sites", site, "customers")+filter.query())
}

// CountCustomers returns the number of customer links that match the filter. It ignores Limit.
func (c *Client) CountCustomers(ctx context.Context, site string, filter CustomerFilter) (int, error) {
	filter.Limit = 1
	first, err := fetch[CustomerLink](ctx, c, path("billing", "sites", site, "customers")+filter.query())
	return first.TotalItems, err
}

func (f CustomerFilter) query() string {
	return query(map[string]string{"state": f.State}, map[string]int64{
		"invitedFrom": f.InvitedFrom, "invitedTo": f.InvitedTo, "limit": int64(f.Limit),
	})
}
