package api

import (
	"context"
	"net/http"

	"partnerbilling/models"
)

type batchList struct {
	Items      []batchData `json:"items"` // without rows
	TotalItems int64       `json:"totalItems"`
	pageLinks
}

type batchFilter struct {
	State         models.BatchState `json:"s,omitempty"`
	SubmittedFrom *models.Millis    `json:"a,omitempty"`
	SubmittedTo   *models.Millis    `json:"b,omitempty"`
}

func readBatchFilter(in *queryReader) batchFilter {
	return batchFilter{
		State:         oneOf(in, "state", []models.BatchState{models.BatchInProgress, models.BatchSettled}),
		SubmittedFrom: in.millis("submittedFrom"),
		SubmittedTo:   in.millis("submittedTo"),
	}
}

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
