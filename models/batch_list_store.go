package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"partnerbilling/models/postgres"
)

// listBatches reads page, counts, total and links in one statement, so that all come from one
// snapshot and one reading of the clock. See sqlListLinks for its form. It leaves out batches past
// their retention. Only open batches of the page have their rows in progress counted.
const listBatches = `
WITH clock AS MATERIALIZED (SELECT svc_now() AS now),
matching AS NOT MATERIALIZED (
	SELECT * FROM batches
	WHERE site_id = $1 AND submitted_at BETWEEN $2 AND $3 AND submitted_at > (SELECT now FROM clock) - $4 AND <state>
),
page AS (
	SELECT * FROM matching WHERE (submitted_at, id) <ahead> ($5, $6)
	ORDER BY submitted_at <order>, id <order> LIMIT <limit>
)
SELECT clock.now, (SELECT count(*) FROM matching),
	(SELECT true FROM matching WHERE (submitted_at, id) <behind> ($5, $6) ORDER BY submitted_at <back>, id <back> LIMIT 1) IS NOT NULL,
	(SELECT count(*) FROM batch_rows r
	 WHERE b.state = 'inProgress' AND r.site_id = b.site_id AND r.batch_id = b.id AND r.state = 'inProgress'),
	b.site_id, b.id, b.organisation_id, coalesce(b.batch_reference, ''), coalesce(b.state, 'inProgress'),
	coalesce(b.row_count, 0), coalesce(b.settled_count, 0), coalesce(b.succeeded_count, 0), coalesce(b.total_amount, 0),
	coalesce(b.succeeded_amount, 0), coalesce(b.currency, ''), coalesce(b.submitted_at, 0), coalesce(b.settle_by, 0),
	coalesce(b.settled_at, 0), coalesce(b.cancelled_at, 0), coalesce(b.generation, 0), coalesce(b.retry_of, ''),
	coalesce(b.retried_as, '')
FROM clock LEFT JOIN page b ON true
ORDER BY b.submitted_at DESC, b.id DESC`

// batchStateConditions select batches by effective state: a batch past its deadline is settled,
// even before it is closed.
var batchStateConditions = map[BatchState]string{
	"":              `true`,
	BatchInProgress: `state = 'inProgress' AND settle_by > (SELECT now FROM clock)`,
	BatchSettled:    `(state = 'settled' OR settle_by <= (SELECT now FROM clock))`,
}

func listBatchesSQL(q *BatchQuery) string {
	order := []string{"<ahead>", "<", "<order>", "DESC", "<behind>", ">=", "<back>", "ASC"}
	if q.Direction == Backward {
		order = []string{"<ahead>", ">", "<order>", "ASC", "<behind>", "<=", "<back>", "DESC"}
	}
	return strings.NewReplacer(append(order, "<state>", batchStateConditions[q.State], "<limit>",
		strconv.Itoa(q.Limit+1))...).
		Replace(listBatches)
}

// ListBatches returns one page of a Site's batches. A walk through the pages finds every batch that
// matched throughout exactly once, despite concurrent changes.
func (s *Store) ListBatches(ctx context.Context, q BatchQuery) (BatchPage, error) {
	if _, ok := batchStateConditions[q.State]; !ok || q.Limit < 1 || q.Limit > 100 {
		return BatchPage{}, fmt.Errorf("models: list batches: state %q, limit %d", q.State, q.Limit)
	}
	var page BatchPage
	list := func() error {
		var err error
		page, err = s.listBatches(ctx, &q)
		return err
	}
	err := s.pg.Do(ctx, list)
	if err == nil && slices.ContainsFunc(page.Batches, func(b Batch) bool { return b.overdue(page.Now) }) {
		if err = s.closeOverdueIn(ctx, q.SiteID); err == nil {
			err = s.pg.Do(ctx, list)
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
	at := q.From
	if at == (BatchPosition{}) && q.Direction != Backward {
		at = BatchPosition{SubmittedAt: math.MaxInt64}
	}
	from, to := Millis(math.MinInt64), Millis(math.MaxInt64)
	if q.SubmittedFrom != nil {
		from = *q.SubmittedFrom
	}
	if q.SubmittedTo != nil {
		to = *q.SubmittedTo
	}
	rows, err := s.db.DB.QueryContext(ctx, listBatchesSQL(q),
		q.SiteID, from, to, BatchRetention.Milliseconds(), at.SubmittedAt, at.ID)
	if err != nil {
		return BatchPage{}, err
	}
	defer func() { _ = rows.Close() }()
	var (
		now    Millis
		total  int64
		behind bool
		found  = make([]Batch, 0, q.Limit+1)
	)
	for rows.Next() {
		var b Batch
		var inProgress int
		if err := rows.Scan(append([]any{&now, &total, &behind, &inProgress}, batchFields(&b)...)...); err != nil {
			return BatchPage{}, err
		}
		if b.ID.IsZero() { // an empty page still has one row, with NULLs
			continue
		}
		b.fillCounts()
		b.Counts.Pending -= inProgress
		b.Counts.InProgress = inProgress
		found = append(found, b)
	}
	page := BatchPage{Total: total, Now: now}
	page.Batches, page.Next, page.Prev = cutPage(found, q.Limit, q.Direction, behind, (*Batch).position)
	return page, rows.Err()
}
