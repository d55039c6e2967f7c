package models

import (
	"context"
	_ "embed" // statements
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"partnerbilling/models/postgres"
)

//go:embed batch_list.sql
var listBatchesText string

// batchLists holds the statements of the list by effective state; "" is all states. A batch past
// its deadline counts as settled, even before it is closed.
var batchLists = map[BatchState]listStatement{
	"":              newBatchList(`true`),
	BatchInProgress: newBatchList(`state = 'inProgress' AND settle_by > (SELECT now FROM clock)`),
	BatchSettled:    newBatchList(`(state = 'settled' OR settle_by <= (SELECT now FROM clock))`),
}

// newBatchList makes the statements of the batches that meet a condition.
func newBatchList(condition string) listStatement {
	return newListStatement(listBatchesText, maxPage, ":STATE", condition)
}

// page returns what the query has in common with the queries of other lists.
func (q *BatchQuery) page() pageQuery[BatchID] {
	return pageQuery[BatchID]{q.SubmittedFrom, q.SubmittedTo, q.Direction, q.At, q.Limit}
}

// ListBatches returns one page of a Site's batches. A walk through the pages finds every batch that
// matched throughout exactly once, despite concurrent changes. If the page has an open batch past
// its deadline, ListBatches closes all such batches of the Site and reads the page again.
func (s *Store) ListBatches(ctx context.Context, q BatchQuery) (BatchPage, error) {
	if _, ok := batchLists[q.State]; !ok || q.Limit < 1 || q.Limit > maxPage {
		return BatchPage{}, fmt.Errorf("models: list batches: state %q, limit %d", q.State, q.Limit)
	}
	page, err := s.listBatches(ctx, &q)
	if err == nil && slices.ContainsFunc(page.Items, func(b Batch) bool { return b.overdue(page.Now) }) {
		if err = s.closeOverdueIn(ctx, q.SiteID); err == nil {
			page, err = s.listBatches(ctx, &q)
		}
	}
	return page, wrap("list batches", err)
}

var lockOverdueInSiteSQL = postgres.SQL(`
SELECT site_id, id FROM batches WHERE site_id = :site AND settled_at IS NULL AND settle_by <= svc_now()
ORDER BY settle_by LIMIT 1 FOR UPDATE`)

// closeOverdueIn closes every open batch of a Site that is past its deadline.
func (s *Store) closeOverdueIn(ctx context.Context, site SiteID) error {
	for {
		_, err := s.closeOverdue(ctx, lockOverdueInSiteSQL, postgres.Args{"site": site})
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// listBatches reads a page, and closes no batch.
func (s *Store) listBatches(ctx context.Context, q *BatchQuery) (BatchPage, error) {
	args := q.page().span(maxListTime, BatchID(uuid.Max)).args(q.Limit)
	args["site"], args["retention"] = q.SiteID, BatchRetention.Milliseconds()
	var rows []*batchListRow
	if err := s.pg.Select(ctx, batchLists[q.State].going(q.Direction), args, &rows); err != nil {
		return BatchPage{}, err
	}
	return pageOf(rows, q.page(), (*Batch).position), nil
}

// batchListRow is a row of a list statement: a batch, with what the row repeats about the list.
type batchListRow struct {
	listHead
	storedBatch
	InProgress int // rows in progress; storedBatch counts them as pending
}

// item returns the batch; nil if the page is empty.
func (r *batchListRow) item() *Batch {
	if r.ID.IsZero() {
		return nil
	}
	b := r.batch()
	b.Counts.Pending -= r.InProgress
	b.Counts.InProgress = r.InProgress
	return &b
}
