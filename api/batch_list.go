package api

import (
	"context"
	"net/http"

	"partnerbilling/models"
)

// batchList is one page of a Site's batches on the wire.
type batchList struct {
	Items      []batchData `json:"items"` // without rows
	TotalItems int64       `json:"totalItems"`
	pageLinks
}

// batchFilter selects batches, as a pagination link encodes it. Both times are inclusive.
type batchFilter struct {
	State         models.BatchState `json:"s,omitempty"`
	SubmittedFrom *models.Millis    `json:"a,omitempty"`
	SubmittedTo   *models.Millis    `json:"b,omitempty"`
}

// readBatchFilter decodes the filter in the query of a first page.
func readBatchFilter(in *queryReader) batchFilter {
	return batchFilter{
		State:         oneOf(in, "state", []models.BatchState{models.BatchInProgress, models.BatchSettled}),
		SubmittedFrom: in.millis("submittedFrom"),
		SubmittedTo:   in.millis("submittedTo"),
	}
}

// list answers with one page of the Site's batches, newest first, without their rows.
func (b *batches) list(ctx context.Context, r *Request) error {
	q, err := openPage[batchFilter, models.BatchPosition](ctx, b.pages, r, readBatchFilter)
	if err != nil {
		return err
	}
	page, err := b.store.ListBatches(ctx, models.BatchQuery{
		SiteID: r.Site.ID, State: q.Filter.State, SubmittedFrom: q.Filter.SubmittedFrom,
		SubmittedTo: q.Filter.SubmittedTo, Direction: q.Direction, At: q.From, Limit: q.Limit,
	})
	if err != nil {
		return err
	}
	list := batchList{Items: make([]batchData, len(page.Items)), TotalItems: page.Total}
	for i := range page.Items {
		list.Items[i] = describeBatch(&page.Items[i], nil)
	}
	if list.pageLinks, err = q.links(ctx, b.pages, r, page.Next, page.Prev, page.Now); err != nil {
		return err
	}
	return r.JSON(http.StatusOK, list)
}
