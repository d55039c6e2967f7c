package models

import (
	"context"
	_ "embed" // statements
	"errors"
	"fmt"
	"slices"

	"partnerbilling/models/postgres"

	"github.com/google/uuid"
)

//go:embed batch_list.sql
var listBatchesText string

// batchLists are the statements of the list by effective state: a batch past its deadline is
// settled, even before it is closed.
var batchLists = map[BatchState]listStatement{
	"":              newBatchList(`true`),
	BatchInProgress: newBatchList(`state = 'inProgress' AND settle_by > (SELECT now FROM clock)`),
	BatchSettled:    newBatchList(`(state = 'settled' OR settle_by <= (SELECT now FROM clock))`),
}

func newBatchList(condition string) listStatement {
	return newListStatement(listBatchesText, maxPage, ":STATE", condition)
}

func (q *BatchQuery) page() pageQuery[BatchID] {
	return pageQuery[BatchID]{q.SubmittedFrom, q.SubmittedTo, q.Direction, q.At, q.Limit}
}

// ListBatches returns one page of a Site's batches. A walk through the pages finds every batch that
// matched throughout exactly once, despite concurrent changes. If the page has a batch past its
// deadline, ListBatches closes all such batches of the Site and reads the page again.
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

// closeOverdueIn closes every batch of a Site that is past its deadline.
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

func (s *Store) listBatches(ctx context.Context, q *BatchQuery) (BatchPage, error) {
	args := q.page().span(maxListTime, BatchID(uuid.Max)).args(q.Limit)
	args["site"], args["retention"] = q.SiteID, BatchRetention.Milliseconds()
	var rows []*batchListRow
	if err := s.pg.Select(ctx, batchLists[q.State].going(q.Direction), args, &rows); err != nil {
		return BatchPage{}, err
	}
	return pageOf(rows, q.page(), (*Batch).position), nil
}

type batchListRow struct {
	listHead
	storedBatch
	InProgress int // rows in progress, which the stored counts include in Pending
}

func (r *batchListRow) item() *Batch {
	if r.ID.IsZero() {
		return nil
	}
	b := r.batch()
	b.Counts.Pending -= r.InProgress
	b.Counts.InProgress = r.InProgress
	return &b
}
