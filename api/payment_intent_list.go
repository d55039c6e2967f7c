package api

import (
	"context"
	"net/http"

	"partnerbilling/models"
)

// paymentIntentList is one page of a Site's payment intents on the wire.
type paymentIntentList struct {
	Items []paymentIntentData `json:"items"`
	pageLinks
}

// paymentIntentFilter selects payment intents, as a pagination link encodes it. Both times are
// inclusive.
type paymentIntentFilter struct {
	OrderID     string                   `json:"o,omitempty"`
	State       models.IntentState       `json:"s,omitempty"`
	Status      models.TransactionStatus `json:"x,omitempty"`
	CreatedFrom *models.Millis           `json:"a,omitempty"`
	CreatedTo   *models.Millis           `json:"b,omitempty"`
}

// readPaymentIntentFilter decodes the filter in the query of a first page.
func readPaymentIntentFilter(in *queryReader) paymentIntentFilter {
	return paymentIntentFilter{
		OrderID:     in.text("orderId", models.ValidateReference),
		State:       oneOf(in, "state", models.IntentStates),
		Status:      oneOf(in, "transactionStatus", models.TransactionStatuses),
		CreatedFrom: in.millis("createdFrom"),
		CreatedTo:   in.millis("createdTo"),
	}
}

// list answers with one page of the Site's payment intents, newest first.
func (p *paymentIntents) list(ctx context.Context, r *Request) error {
	q, err := openPage[paymentIntentFilter, models.IntentPosition](ctx, p.pages, r, readPaymentIntentFilter)
	if err != nil {
		return err
	}
	page, err := p.store.ListPaymentIntents(ctx, models.IntentQuery{
		SiteID: r.Site.ID, OrderID: q.Filter.OrderID, State: q.Filter.State, Status: q.Filter.Status,
		CreatedFrom: q.Filter.CreatedFrom, CreatedTo: q.Filter.CreatedTo, Direction: q.Direction, At: q.From,
		Limit: q.Limit,
	})
	if err != nil {
		return err
	}
	list := paymentIntentList{Items: make([]paymentIntentData, len(page.Items))}
	for i := range page.Items {
		list.Items[i] = p.describe(&page.Items[i])
	}
	if list.pageLinks, err = q.links(ctx, p.pages, r, page.Next, page.Prev, page.Now); err != nil {
		return err
	}
	return r.JSON(http.StatusOK, list)
}
