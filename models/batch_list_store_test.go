package models_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// insertBatches inserts batches with their rows, in any states and at any times.
func insertBatches(t testing.TB, store *models.Store, batches []models.Batch) {
	t.Helper()
	for i := range batches {
		b := &batches[i]
		_, err := store.DB().ExecContext(t.Context(), `
			INSERT INTO batches (site_id, id, organisation_id, batch_reference, state, row_count, settled_count,
				succeeded_count,
				total_amount, succeeded_amount, currency, submitted_at, settle_by, settled_at, fingerprint,
					generation, epoch)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 0), '', 1, 1)`,
			b.SiteID, b.ID, b.OrganisationID, b.Reference, b.State, b.Counts.Rows(), b.Counts.Settled,
			b.Counts.Succeeded,
			int64(b.TotalAmount), int64(b.SucceededAmount), b.Currency, b.SubmittedAt, b.SettleBy, b.SettledAt)
		must(t, err)
		for row := range b.Counts.Rows() {
			state, outcome := models.RowPending, ""
			if row < b.Counts.Settled {
				state, outcome = models.RowSettled, string(models.OutcomeDeclined)
			} else if row < b.Counts.Settled+b.Counts.InProgress {
				state = models.RowInProgress
			}
			_, err := store.DB().ExecContext(t.Context(), `
				INSERT INTO batch_rows (site_id, batch_id, row_index, amount, state, outcome, settled_at,
					customer_reference, row_reference)
				VALUES (?0, ?1, ?2, 1, ?3, nullif(?4, '')::row_outcome, CASE WHEN ?4 <> '' THEN 1 END, 'c', ?5)`,
				b.SiteID, b.ID, row, state, outcome,
				fmt.Sprint(row))
			must(t, err)
		}
	}
}

// anyBatches generates batches around noon, many at one instant, some past their retention.
func anyBatches(r *rapid.T, site models.Site) []models.Batch {
	batches := make([]models.Batch, rapid.IntRange(0, 12).Draw(r, "batches"))
	for i := range batches {
		b := &batches[i]
		*b = models.Batch{
			SiteID: site.ID, ID: models.BatchID(uuid.New()), OrganisationID: site.OrganisationID,
			Reference: fmt.Sprint(i), Generation: 1, Currency: "AUD", TotalAmount: 7, State: models.BatchInProgress,
			SubmittedAt: noon + models.Millis(rapid.Int64Range(0, 3).Draw(r, "submittedAt")),
			Counts: models.BatchCounts{
				Pending:    rapid.IntRange(0, 2).Draw(r, "pending"),
				InProgress: rapid.IntRange(0, 2).Draw(r, "inProgress"),
				Settled:    rapid.IntRange(1, 2).Draw(r, "settled"),
				Succeeded:  rapid.IntRange(0, 1).Draw(r, "succeeded"),
			},
		}
		// The deadline is far off: another test covers settling overdue batches.
		b.Counts.Failed, b.SettleBy = b.Counts.Settled-b.Counts.Succeeded, b.SubmittedAt.Add(2*models.BatchRetention)
		b.SucceededAmount = models.Amount(b.Counts.Succeeded)
		if b.Counts.Settled == b.Counts.Rows() {
			b.State, b.SettledAt = models.BatchSettled, b.SubmittedAt+1
		}
	}
	return batches
}

// naiveBatchList is the reference implementation of the list.
func naiveBatchList(batches []models.Batch, q *models.BatchQuery, now models.Millis) []models.Batch {
	out := []models.Batch{}
	for _, b := range batches {
		if (q.State == "" || q.State == b.State) && (q.SubmittedFrom == nil || b.SubmittedAt >= *q.SubmittedFrom) &&
			(q.SubmittedTo == nil || b.SubmittedAt <= *q.SubmittedTo) &&
			now < b.SubmittedAt.Add(models.BatchRetention) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b models.Batch) int {
		return cmp.Or(cmp.Compare(b.SubmittedAt, a.SubmittedAt), cmp.Compare(b.ID.String(), a.ID.String()))
	})
	return out
}

func TestListBatchesAgainstNaiveModel(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	rapid.Check(t, func(r *rapid.T) {
		site := modelstest.Site(t, store)
		now := noon + models.Millis(rapid.SampledFrom([]int64{0, 5, models.BatchRetention.Milliseconds() + 1}).
			Draw(r, "now"))
		modelstest.SetClock(t, store, now)
		batches := anyBatches(r, site)
		insertBatches(t, store, batches)
		bound := func(label string) *models.Millis {
			if !rapid.Bool().Draw(r, label+" given") {
				return nil
			}
			at := noon + models.Millis(rapid.Int64Range(-1, 4).Draw(r, label))
			return &at
		}
		q := models.BatchQuery{
			SiteID: site.ID, Limit: rapid.IntRange(1, 5).Draw(r, "limit"), Direction: models.Forward,
			State: rapid.SampledFrom([]models.BatchState{"", models.BatchInProgress, models.BatchSettled}).Draw(r,
				"state"),
			SubmittedFrom: bound("from"), SubmittedTo: bound("to"),
		}
		checkBatchWalk(t, r, store, q, naiveBatchList(batches, &q, now), now)
	})
}

// checkBatchWalk reads every page forward, then every page backward.
func checkBatchWalk(
	t testing.TB, r *rapid.T, store *models.Store, q models.BatchQuery, want []models.Batch, now models.Millis,
) {
	read := func(start, end int) models.BatchPage {
		page, err := store.ListBatches(t.Context(), q)
		must(r, err)
		if diff := gocmp.Diff(want[start:end], page.Items); diff != "" {
			r.Fatalf("%s from %d: %s", q.Direction, start, diff)
		}
		if page.Total != int64(len(want)) || page.Now != now || (page.Prev != nil) != (start > 0) ||
			(page.Next != nil) != (end < len(want)) {
			r.Fatalf("%s from %d of %d: %+v", q.Direction, start, len(want), page)
		}
		return page
	}
	start := 0
	page := read(0, min(q.Limit, len(want)))
	for page.Next != nil {
		start += q.Limit
		q.At = *page.Next
		page = read(start, min(start+q.Limit, len(want)))
	}
	for q.Direction = models.Backward; page.Prev != nil; {
		q.At = *page.Prev
		end := start
		start = max(end-q.Limit, 0)
		page = read(start, end)
	}
}

func TestListBatchesEmptiedPage(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, noon)
	for i := range 4 {
		modelstest.Submit(t, store, modelstest.Batch(site, fmt.Sprint(i), "ada"))
	}
	q := models.BatchQuery{SiteID: site.ID, State: models.BatchInProgress, Direction: models.Forward, Limit: 2}
	first, err := store.ListBatches(t.Context(), q)
	must(t, err)
	for _, reference := range []string{"0", "1"} { // the second page
		_, _, err := store.CancelBatch(t.Context(), site.ID, reference)
		must(t, err)
	}
	q.At = *first.Next
	empty, err := store.ListBatches(t.Context(), q)
	must(t, err)
	if len(empty.Items) != 0 || empty.Next != nil || empty.Prev == nil || empty.Total != 2 {
		t.Fatalf("got %+v", empty)
	}
	q.Direction, q.At = models.Backward, *empty.Prev
	back, err := store.ListBatches(t.Context(), q)
	must(t, err)
	if diff := gocmp.Diff(first.Items, back.Items); diff != "" || back.Next != nil || back.Prev != nil {
		t.Errorf("back: %+v: %s", back, diff)
	}
}

func TestListBatchesRefusesBadQueries(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	for _, q := range []models.BatchQuery{{Limit: 0}, {Limit: 101}, {Limit: 1, State: "Settled"},
		{Limit: 1, State: "true; --"}} {
		if _, err := store.ListBatches(t.Context(), q); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}
}

// While writers submit and cancel, walks in both directions find every batch that matched
// throughout exactly once.
func TestListBatchesWhileWritersWrite(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, noon)
	steady := map[models.BatchID]bool{}
	for i := range 30 { // at 10 instants, three each
		if i%3 == 0 {
			modelstest.AdvanceClock(t, store, time.Millisecond)
		}
		steady[modelstest.Submit(t, store, modelstest.Batch(site, fmt.Sprint("steady ", i), "ada")).Batch.ID] = true
	}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				reference := fmt.Sprintf("writer %d, %d", w, i)
				_, err := store.SubmitBatch(t.Context(), modelstest.Batch(site, reference, "ada"))
				if err == nil && i%2 == 0 {
					_, _, err = store.CancelBatch(t.Context(), site.ID, reference)
				}
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false // once more, without writers
		default:
		}
		for _, direction := range []models.Direction{models.Forward, models.Backward} {
			q := models.BatchQuery{SiteID: site.ID, State: models.BatchInProgress, Limit: 7, Direction: direction}
			seen := map[models.BatchID]int{}
			for from := (&models.BatchPosition{}); from != nil; {
				q.At = *from
				page, err := store.ListBatches(t.Context(), q)
				must(t, err)
				for _, b := range page.Items {
					seen[b.ID]++
				}
				if from = page.Next; direction == models.Backward {
					from = page.Prev
				}
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("%s: %v was seen %d times", direction, id, n)
				}
			}
			for id := range steady {
				if seen[id] != 1 {
					t.Errorf("%s: %v was seen %d times", direction, id, seen[id])
				}
			}
		}
	}
}

func TestBatchVersion(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "bob", "eve"))
	seen := map[models.BatchVersion]string{}
	version := func(after string) models.BatchVersion {
		v, err := store.BatchVersion(t.Context(), site.ID, "b")
		must(t, err)
		if again, err := store.BatchVersion(t.Context(), site.ID, "b"); again != v || err != nil {
			t.Errorf("after %s: %+v, then %+v, %v", after, v, again, err)
		}
		if _, _, read, err := store.GetVersionedBatch(t.Context(), site.ID, "b"); read != v || err != nil {
			t.Errorf("after %s: %+v, read with the batch %+v, %v", after, v, read, err)
		}
		if earlier, ok := seen[v]; ok {
			t.Errorf("after %s it is the version after %s", after, earlier)
		}
		seen[v] = after
		return v
	}
	version("submission")
	chunk := claim(t, store, done.Tasks[0])
	version("the claim")
	finish(t, store, chunk, models.RowResult{Index: 0, RetryAfter: time.Minute})
	version("an unknown answer")
	finish(t, store, chunk, models.RowResult{Index: 1, Release: true, RetryAfter: time.Minute})
	version("a release")
	_, _, err := store.CancelBatch(t.Context(), site.ID, "b")
	must(t, err)
	version("cancellation")
	finish(t, store, chunk, models.RowResult{Index: 2, Outcome: models.OutcomeTimedOut}) // which is cancelled
	if v := version("another settled row"); v.State != models.BatchInProgress {
		t.Errorf("state %s", v.State)
	}
	finish(t, store, chunk, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded})
	if v := version("the last one"); v.State != models.BatchSettled {
		t.Errorf("state %s", v.State)
	}
	finish(t, store, chunk, models.RowResult{Index: 2, Outcome: models.OutcomeSucceeded})
	version("a correction")
	if _, err := store.BatchVersion(t.Context(), site.ID, "none"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	modelstest.AdvanceClock(t, store, models.BatchRetention)
	if _, err := store.BatchVersion(t.Context(), site.ID, "b"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("past retention: %v", err)
	}
}
