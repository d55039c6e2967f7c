package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// NewInvitation is an invitation to create.
type NewInvitation struct {
	CustomerReference string `json:"customerReference"`
	ExpiresAt         int64  `json:"expiresAt,omitempty"` // Unix ms; 0: in seven days
}

// Invitation is a created invitation.
type Invitation struct {
	CustomerReference string `json:"customerReference"`
	State             string `json:"state"`
	SignupURL         string `json:"signupUrl"` // deliver it to the customer
	InvitedAt         int64  `json:"invitedAt"` // Unix ms
	ExpiresAt         int64  `json:"expiresAt"` // Unix ms
	TraceID           string `json:"-"`         // for Trace
}

// Customer is the state of a customer link.
type Customer struct {
	CustomerReference string `json:"customerReference"`
	State             string `json:"state"`               // invited, linked, expired or revoked
	InvitedAt         int64  `json:"invitedAt"`           // Unix ms
	ExpiresAt         int64  `json:"expiresAt,omitempty"` // Unix ms; 0 unless invited
	LinkedAt          int64  `json:"linkedAt,omitempty"`  // Unix ms; 0 unless linked
}

// CustomerFilter selects customers of a list. The zero value selects all.
type CustomerFilter struct {
	State       string
	InvitedFrom int64 // Unix ms, inclusive
	InvitedTo   int64 // Unix ms, inclusive
	Limit       int   // items per page; 0: the API's default
}

// CreateInvitation creates an invitation with a sign-up link. With an idempotency key the request
// can be repeated safely, and the client retries it.
func (c *Client) CreateInvitation(
	ctx context.Context, site string, in NewInvitation, idempotencyKey string,
) (Invitation, error) {
	var out Invitation
	header := http.Header{}
	if idempotencyKey != "" {
		header.Set("Idempotency-Key", idempotencyKey)
	}
	answer, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "customers", "invitations"), body: in,
		header: header, repeatable: idempotencyKey != "",
	}, &out)
	out.TraceID = answer.trace
	return out, err
}

// Customer returns the newest link of a customer reference.
func (c *Client) Customer(ctx context.Context, site, reference string) (Customer, error) {
	var out Customer
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "customers", reference), repeatable: true,
	}, &out)
	return out, err
}

// RevokeCustomer revokes the newest link of a customer reference.
func (c *Client) RevokeCustomer(ctx context.Context, site, reference string) (Customer, error) {
	var out Customer
	_, err := c.do(ctx, request{
		method: http.MethodPost, path: path("billing", "sites", site, "customers", reference, "revocation"),
		repeatable: true,
	}, &out)
	return out, err
}

// customerPage is a page of the customer list.
type customerPage struct {
	Items      []Customer `json:"items"`
	TotalItems int        `json:"totalItems"`
	NextHref   string     `json:"nextHref"`
}

// Customers iterates over the customer links of a Site, newest first. It fetches further pages as
// needed.
func (c *Client) Customers(ctx context.Context, site string, filter CustomerFilter) iter.Seq2[Customer, error] {
	href := path("billing", "sites", site, "customers") + filter.query()
	return func(yield func(Customer, error) bool) {
		for next := href; next != ""; {
			var page customerPage
			if _, err := c.do(ctx, request{method: http.MethodGet, path: next, repeatable: true}, &page); err != nil {
				yield(Customer{}, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			next = page.NextHref
		}
	}
}

// CountCustomers returns the number of links that match the filter.
func (c *Client) CountCustomers(ctx context.Context, site string, filter CustomerFilter) (int, error) {
	var page customerPage
	filter.Limit = 1
	_, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "customers") + filter.query(), repeatable: true,
	}, &page)
	return page.TotalItems, err
}

func (f CustomerFilter) query() string {
	values := url.Values{}
	if f.State != "" {
		values.Set("state", f.State)
	}
	for name, n := range map[string]int64{
		"invitedFrom": f.InvitedFrom, "invitedTo": f.InvitedTo, "limit": int64(f.Limit),
	} {
		if n != 0 {
			values.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}
