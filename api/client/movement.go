package client

import (
	"context"
	"iter"
	"net/http"
)

// Movement is an entry of a Site's ledger: a debit that succeeded, or a payment that was settled. A
// debit has the references of batch, row and customer. A payment has the ids of payment intent and
// order.
type Movement struct {
	MovementID        string `json:"movementId"`
	At                int64  `json:"at"`     // Unix ms
	Amount            int64  `json:"amount"` // minor units of Currency
	Currency          string `json:"currency"`
	BatchReference    string `json:"batchReference,omitempty"`
	RowReference      string `json:"rowReference,omitempty"`
	CustomerReference string `json:"customerReference,omitempty"`
	PaymentIntentID   string `json:"paymentIntentId,omitempty"`
	OrderID           string `json:"orderId,omitempty"`
}

// MovementFilter selects movements by time. The zero value selects all.
type MovementFilter struct {
	From  int64 // Unix ms, inclusive; 0: no bound
	To    int64 // Unix ms, inclusive; 0: no bound
	Limit int   // items per page of Movements; 0: the API's default
}

// MovementTotals is the number of movements that match a filter, and the sum of their amounts in
// minor units of the Site's currency.
type MovementTotals struct {
	Items  int
	Amount int64
}

// Movements iterates over the movements of a Site, newest first. It fetches further pages as
// needed.
func (c *Client) Movements(ctx context.Context, site string, filter MovementFilter) iter.Seq2[Movement, error] {
	return list[Movement](ctx, c, path("billing", "sites", site, "movements")+filter.query())
}

// TotalMovements returns the number and the sum of the movements that match the filter.
func (c *Client) TotalMovements(ctx context.Context, site string, filter MovementFilter) (MovementTotals, error) {
	filter.Limit = 1
	first, err := fetch[Movement](ctx, c, path("billing", "sites", site, "movements")+filter.query())
	return MovementTotals{Items: first.TotalItems, Amount: first.TotalAmount}, err
}

// MovementsCSV returns all movements that match the filter as CSV, with a header line.
func (c *Client) MovementsCSV(ctx context.Context, site string, filter MovementFilter) ([]byte, error) {
	filter.Limit = 0
	answer, err := c.do(ctx, request{
		method: http.MethodGet, path: path("billing", "sites", site, "movements") + filter.query(),
		header: http.Header{"Accept": {"text/csv"}}, repeatable: true, raw: true,
	}, nil)
	return answer.body, err
}

func (f MovementFilter) query() string {
	return query(nil, map[string]int64{"from": f.From, "to": f.To, "limit": int64(f.Limit)})
}
