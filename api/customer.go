package api

import (
	"context"
	"errors"
	"net/http"

	"partnerbilling/models"
)

// customerParam returns the path parameter of the routes about one customer.
func customerParam(unknown Code) Param {
	return Param{Name: "customerReference", Check: models.ValidateReference, NotFound: unknown}
}

func customerRoutes(cfg Config) []Route {
	c := &customers{store: cfg.Store, pages: &paginator{cfg.Keys, cfg.PublicBaseURL}}
	return []Route{
		{
			Method: http.MethodGet, Path: "/billing/sites/{siteId}/customers", Area: "customers", Audience: Partner,
			Scope: models.ScopeCustomersRead, Version: VersionRequired, Paged: true,
			Query: []string{"limit", "state", "invitedFrom", "invitedTo"}, Handler: c.list,
		},
		{
			Method: http.MethodGet, Path: "/billing/sites/{siteId}/customers/{customerReference}", Area: "customers",
			Audience: Partner, Scope: models.ScopeCustomersRead, Version: VersionOptional,
			Param: customerParam(CustomerNotFound), Handler: c.get,
		},
		{
			Method: http.MethodPost, Path: "/billing/sites/{siteId}/customers/{customerReference}/revocation",
			Area: "customers", Audience: Partner, Scope: models.ScopeCustomersWrite, Version: VersionOptional,
			Param: customerParam(CustomerNotFound), Handler: c.revoke,
		},
	}
}

// customers handles the routes about a Site's customers.
type customers struct {
	store *models.Store
	pages *paginator
}

type customerList struct {
	Items      []models.CustomerSummary `json:"items"`
	TotalItems int64                    `json:"totalItems"`
	NextHref   string                   `json:"nextHref,omitempty"`
	PrevHref   string                   `json:"prevHref,omitempty"`
}

type customerFilter struct {
	State       models.LinkState `json:"s,omitempty"`
	InvitedFrom *models.Millis   `json:"a,omitempty"`
	InvitedTo   *models.Millis   `json:"b,omitempty"`
}

func readCustomerFilter(in *queryReader) customerFilter {
	return customerFilter{
		State:       oneOf(in, "state", models.LinkStates),
		InvitedFrom: in.millis("invitedFrom"),
		InvitedTo:   in.millis("invitedTo"),
	}
}

func (c *customers) list(ctx context.Context, r *Request) error {
	q, err := openPage[customerFilter, models.LinkPosition](ctx, c.pages, r, readCustomerFilter)
	if err != nil {
		return err
	}
	page, err := c.store.ListLinks(ctx, models.LinkQuery{
		SiteID: r.Site.ID, State: q.Filter.State, InvitedFrom: q.Filter.InvitedFrom, InvitedTo: q.Filter.InvitedTo,
		Direction: q.Direction, From: q.From, Limit: q.Limit})
	if err != nil {
		return err
	}
	if err := q.checkAge(r, page.Now); err != nil {
		return err
	}
	list := customerList{Items: make([]models.CustomerSummary, len(page.Links)), TotalItems: page.Total}
	for i := range page.Links {
		list.Items[i] = page.Links[i].Summary()
	}
	if list.NextHref, err = q.href(ctx, c.pages, r, models.Forward, page.Next, page.Now); err != nil {
		return err
	}
	if list.PrevHref, err = q.href(ctx, c.pages, r, models.Backward, page.Prev, page.Now); err != nil {
		return err
	}
	return r.JSON(http.StatusOK, list)
}

func (c *customers) get(ctx context.Context, r *Request) error {
	link, err := c.store.Customer(ctx, r.Site.ID, r.Param())
	if err != nil {
		return customerError(err)
	}
	return r.JSON(http.StatusOK, link.Summary())
}

func (c *customers) revoke(ctx context.Context, r *Request) error {
	link, err := c.store.RevokeCustomer(ctx, r.Site.ID, r.Param())
	if err != nil {
		return customerError(err)
	}
	return r.JSON(http.StatusOK, link.Summary())
}

// customerError maps errors about the customer in the path to their answers.
func customerError(err error) error {
	switch {
	case errors.Is(err, models.ErrNotFound):
		return Refuse(CustomerNotFound, "customerReference")
	case errors.Is(err, models.ErrLinkExpired):
		return Refuse(CustomerLinkExpired, "customerReference")
	}
	return err
}
