package api

import (
	"context"
	"net/http"

	"partnerbilling/models"
)

// movements handles the route that lists the movements of a Site's money.
type movements struct {
	store   *models.Store
	pages   *paginator
	exports chan struct{} // has an element for each table that is being streamed
}

func newMovements(cfg Config) *movements {
	return &movements{store: cfg.Store, pages: newPaginator(cfg), exports: make(chan struct{}, maxExports)}
}

// movementData is a movement on the wire. The CSV has the same fields in the same order.
type movementData struct {
	MovementID        models.MovementID      `json:"movementId"`
	At                models.Millis          `json:"at"`
	Amount            models.Amount          `json:"amount"`
	Currency          string                 `json:"currency"`
	BatchReference    string                 `json:"batchReference,omitempty"`
	RowReference      string                 `json:"rowReference,omitempty"`
	CustomerReference string                 `json:"customerReference,omitempty"`
	PaymentIntentID   models.PaymentIntentID `json:"paymentIntentId,omitzero"`
	OrderID           string                 `json:"orderId,omitempty"`
}

func describeMovement(m *models.Movement) movementData {
	return movementData{
		MovementID: m.ID(), At: m.RecordedAt, Amount: m.Amount, Currency: m.Currency, BatchReference: m.BatchReference,
		RowReference: m.RowReference, CustomerReference: m.CustomerReference, PaymentIntentID: m.PaymentIntentID,
		OrderID: m.OrderID,
	}
}

// movementList is one page of movements on the wire. The totals are those of all pages.
type movementList struct {
	Items       []movementData `json:"items"`
	TotalAmount models.Amount  `json:"totalAmount"`
	TotalItems  int64          `json:"totalItems"`
	pageLinks
}

// movementFilter selects movements by time, as a pagination link encodes it. Both times are
// inclusive.
type movementFilter struct {
	From *models.Millis `json:"a,omitempty"`
	To   *models.Millis `json:"b,omitempty"`
}

// readMovementFilter decodes the filter in the query of a first page.
func readMovementFilter(in *queryReader) movementFilter {
	return movementFilter{From: in.millis("from"), To: in.millis("to")}
}

// list answers with one page of the Site's movements, newest first. If the client accepts CSV and
// does not prefer JSON, it answers with all movements as a table.
func (m *movements) list(ctx context.Context, r *Request) error {
	q, err := openPage[movementFilter, models.MovementPosition](ctx, m.pages, r, readMovementFilter)
	if err != nil {
		return err
	}
	if csv := r.acceptWeight("text/csv"); csv > 0 && csv >= r.acceptWeight("application/json") {
		return m.export(ctx, r, &q)
	}
	page, err := m.store.ListMovements(ctx, models.MovementQuery{
		SiteID: r.Site.ID, From: q.Filter.From, To: q.Filter.To, Direction: q.Direction, At: q.From, Limit: q.Limit,
	})
	if err != nil {
		return err
	}
	list := movementList{
		Items: make([]movementData, len(page.Items)), TotalAmount: page.TotalAmount, TotalItems: page.Total,
	}
	for i := range page.Items {
		list.Items[i] = describeMovement(&page.Items[i])
	}
	if list.pageLinks, err = q.links(ctx, m.pages, r, page.Next, page.Prev, page.Now); err != nil {
		return err
	}
	return r.JSON(http.StatusOK, list)
}
