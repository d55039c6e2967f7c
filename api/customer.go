package api

import (
	"context"
	"errors"
	"net/http"

	"partnerbilling/models"
)

// customers handles the routes about a Site's customers.
type customers struct {
	store *models.Store
	pages *paginator
}

func newCustomers(cfg Config) *customers {
	return &customers{store: cfg.Store, pages: newPaginator(cfg)}
}

// customerList is one page of a Site's customers on the wire.
type customerList struct {
	Items      []models.CustomerSummary `json:"items"`
	TotalItems int64                    `json:"totalItems"`
	pageLinks
}

// customerFilter selects customers, as a pagination link encodes it. Both times are inclusive.
type customerFilter struct {
	State       models.LinkState `json:"s,omitempty"`
	InvitedFrom *models.Millis   `json:"a,omitempty"`
	InvitedTo   *models.Millis   `json:"b,omitempty"`
}

// readCustomerFilter decodes the filter in the query of a first page.
func readCustomerFilter(in *queryReader) customerFilter {
	return customerFilter{
		State:       oneOf(in, "state", models.LinkStates),
		InvitedFrom: in.millis("invitedFrom"),
		InvitedTo:   in.millis("invitedTo"),
	}
}

// list answers with one page of the Site's customers, newest invitation first.
func (c *customers) list(ctx context.Context, r *Request) error {
	q, err := openPage[customerFilter, models.LinkPosition](ctx, c.pages, r, readCustomerFilter)
	if err != nil {
		return err
	}
	page, err := c.store.ListLinks(ctx, models.LinkQuery{
		SiteID: r.Site.ID, State: q.Filter.State, InvitedFrom: q.Filter.InvitedFrom, InvitedTo: q.Filter.InvitedTo,
		Direction: q.Direction, At: q.From, Limit: q.Limit})
	if err != nil {
		return err
	}
	list := customerList{Items: make([]models.CustomerSummary, len(page.Items)), TotalItems: page.Total}
	for i := range page.Items {
		list.Items[i] = page.Items[i].Summary()
	}
	if list.pageLinks, err = q.links(ctx, c.pages, r, page.Next, page.Prev, page.Now); err != nil {
		return err
	}
	return r.JSON(http.StatusOK, list)
}

// get answers with the newest link of the customerReference in the path.
func (c *customers) get(ctx context.Context, r *Request) error {
	link, err := c.store.Customer(ctx, r.Site.ID, r.Param())
	if err != nil {
		return customerError(err)
	}
	return r.JSON(http.StatusOK, link.Summary())
}

// revoke revokes the newest link of the customerReference in the path, and answers with it.
func (c *customers) revoke(ctx context.Context, r *Request) error {
	link, err := c.store.RevokeCustomer(ctx, r.Site.ID, r.Param())
	if err != nil {
		return customerError(err)
	}
	return r.JSON(http.StatusOK, link.Summary())
}

// customerError maps errors about the customer in the path to their answers. It returns other
// errors unchanged.
func customerError(err error) error {
	switch {
	case errors.Is(err, models.ErrNotFound):
		return Refuse(CustomerNotFound, "customerReference")
	case errors.Is(err, models.ErrLinkExpired):
		return Refuse(CustomerLinkExpired, "customerReference")
	}
	return err
}
