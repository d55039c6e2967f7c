package models_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestSubmitBatchOnceAndAgain(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	batch := modelstest.Batch(site, "november", "ada", "unknown")

	first := modelstest.Submit(t, store, batch)
	want := models.BatchCounts{Pending: 2}
	if b := first.Batch; b.Counts != want || b.TotalAmount != 201 || b.Currency != "AUD" ||
		b.SettleBy != b.SubmittedAt.Add(24*time.Hour) || b.State != models.BatchInProgress {
		t.Errorf("receipt %+v", b)
	}
	if len(first.Tasks) != 1 {
		t.Errorf("%d tasks for two rows", len(first.Tasks))
	}

	again, err := store.SubmitBatch(t.Context(), batch)
	if err != nil || !again.Replayed || again.Batch != first.Batch || len(again.Tasks) != 0 {
		t.Errorf("the same again: %+v, %v", again, err)
	}

	other := modelstest.Batch(site, "november", "ada")
	conflict, err := store.SubmitBatch(t.Context(), other)
	if err != nil || conflict.Conflict == nil {
		t.Fatalf("another under the same reference: %+v, %v", conflict, err)
	}
	if diff := cmp.Diff(batch.Rows, conflict.Conflict.Rows); diff != "" {
		t.Errorf("what is kept to compare (-want +got):\n%s", diff)
	}
}

func TestSubmitBatchToAnUnknownSite(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	batch := modelstest.Batch(modelstest.Site(t, store), "b", "ada")
	batch.SiteID = models.SiteID{1}
	if _, err := store.SubmitBatch(t.Context(), batch); !errors.Is(err, models.ErrNotFound) {
		t.Error(err)
	}
}

func TestSubmitBatchManyChunks(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	for rows, chunks := range map[int]int{1: 1, models.ChunkRows: 1, models.ChunkRows + 1: 2, 5 * models.ChunkRows: 5} {
		done := modelstest.Submit(t, store, modelstest.Batch(site, fmt.Sprint(rows), make([]string, rows)...))
		covered := 0
		for _, task := range done.Tasks {
			chunk, err := store.ClaimChunk(t.Context(), task, models.NewLeaseToken(),
				models.Part{Rows: models.ChunkRows})
			if err != nil {
				t.Fatal(err)
			}
			covered += len(chunk.Rows)
		}
		if len(done.Tasks) != chunks || covered != rows {
			t.Errorf("%d rows: %d chunks with %d rows", rows, len(done.Tasks), covered)
		}
	}
}

// race runs do n times concurrently and counts the results.
func race(n int, do func(i int) string) map[string]int {
	results := make(chan string, n)
	var start sync.WaitGroup
	start.Add(1)
	for i := range n {
		go func() {
			start.Wait()
			results <- do(i)
		}()
	}
	start.Done()
	counts := map[string]int{}
	for range n {
		counts[<-results]++
	}
	return counts
}

func submitted(done models.Submission, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case done.Replayed:
		return "replayed"
	case done.Conflict != nil:
		return "conflict"
	default:
		return "created"
	}
}

func TestSubmitBatchAtOnce(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	same := modelstest.Batch(site, "same", "a", "b", "c")
	got := race(50, func(int) string { return submitted(store.SubmitBatch(t.Context(), same)) })
	if diff := cmp.Diff(map[string]int{"created": 1, "replayed": 49}, got); diff != "" {
		t.Errorf("50 identical (-want +got):\n%s", diff)
	}
	got = race(50, func(i int) string {
		return submitted(store.SubmitBatch(t.Context(), modelstest.Batch(site, "different", fmt.Sprint(i))))
	})
	if diff := cmp.Diff(map[string]int{"created": 1, "conflict": 49}, got); diff != "" {
		t.Errorf("50 different under one reference (-want +got):\n%s", diff)
	}
}

func TestBatchReferenceIsFreeAfterNinetyDays(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	first := modelstest.Submit(t, store, modelstest.Batch(site, "ref", "a"))

	modelstest.AdvanceClock(t, store, models.BatchRetention-time.Millisecond)
	if _, _, err := store.GetBatch(t.Context(), site.ID, "ref"); err != nil {
		t.Fatalf("one millisecond before: %v", err)
	}
	if done, err := store.SubmitBatch(t.Context(), modelstest.Batch(site, "ref", "b")); submitted(done,
		err) != "conflict" {
		t.Fatalf("one millisecond before: %s", submitted(done, err))
	}

	modelstest.AdvanceClock(t, store, time.Millisecond)
	if _, _, err := store.GetBatch(t.Context(), site.ID, "ref"); !errors.Is(err, models.ErrNotFound) {
		t.Fatalf("the batch after its retention: %v", err)
	}
	results := make(chan models.Submission, 20)
	got := race(20, func(int) string {
		done, err := store.SubmitBatch(t.Context(), modelstest.Batch(site, "ref", "a"))
		results <- done
		return submitted(done, err)
	})
	if diff := cmp.Diff(map[string]int{"created": 1, "replayed": 19}, got); diff != "" {
		t.Errorf("20 at once when the reference became free (-want +got):\n%s", diff)
	}
	if second := <-results; second.Batch.ID == first.Batch.ID {
		t.Error("the old batch is back")
	}

	modelstest.AdvanceClock(t, store, models.BatchRetention)
	if n, err := store.DropOldBatches(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("the sweep dropped %d open batches, %v", n, err)
	}
	if _, err := store.CloseOverdueBatch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := store.DropOldBatches(t.Context(), 10); n != 10 || err != nil {
		t.Errorf("the sweep dropped %d, %v", n, err)
	}
	if n, err := store.DropOldBatches(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("the sweep dropped %d more, %v", n, err)
	}
}

// From its deadline on a batch is settled, whichever call looks first, and a cancellation changes
// nothing any more.
func TestBatchIsSettledFromItsDeadlineOn(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "listed", "ada"))
	modelstest.Submit(t, store, modelstest.Batch(site, "cancelled", "ada"))
	list := func(state models.BatchState) int64 {
		page, err := store.ListBatches(t.Context(),
			models.BatchQuery{SiteID: site.ID, State: state, Direction: models.Forward, Limit: 10})
		must(t, err)
		for _, b := range page.Items {
			if b.State != state {
				t.Errorf("%s is listed as %s", b.Reference, b.State)
			}
		}
		return page.Total
	}
	modelstest.AdvanceClock(t, store, models.SettleWithin)
	if open := list(models.BatchInProgress); open != 0 {
		t.Errorf("%d batches are open", open)
	}
	version, err := store.BatchVersion(t.Context(), site.ID, "cancelled")
	if err != nil || version.State != models.BatchSettled {
		t.Errorf("version %+v, %v", version, err)
	}
	batch, rows, err := store.CancelBatch(t.Context(), site.ID, "cancelled")
	if err != nil || batch.State != models.BatchSettled || rows[0].Outcome != models.OutcomeTimedOut ||
		batch.CancelledAt != 0 {
		t.Errorf("cancelled %+v, %+v, %v", batch, rows, err)
	}
	if settled := list(models.BatchSettled); settled != 2 {
		t.Errorf("%d batches are settled", settled)
	}
	if _, rows, err = store.GetBatch(t.Context(), site.ID, done.Batch.Reference); err != nil ||
		rows[0].Outcome != models.OutcomeTimedOut {
		t.Errorf("rows %+v, %v", rows, err)
	}
}

func TestCancelBatchLeavesWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b",
		append([]string{"ada"}, make([]string, models.ChunkRows)...)...))
	chunk := claim(t, store, done.Tasks[0]) // the last row is another chunk's
	cancel := func(want int) (models.Batch, []models.BatchRow, error) {
		t.Helper()
		ctx := actBy(t.Context(), "partner", models.ActCancelBatch)
		batch, rows, err := store.CancelBatch(ctx, site.ID, "b")
		must(t, store.EndAct(ctx, err))
		entry := auditLog(t, store, models.AuditFilter{})[0]
		if detail := fmt.Sprintf(`{"rowsCancelled": %d}`, want); string(entry.Detail) != detail {
			t.Errorf("the audit log says %s, want %s", entry.Detail, detail)
		}
		return batch, rows, err
	}

	batch, rows, err := cancel(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := cancel(0); err != nil { // the others are still in progress
		t.Error(err)
	}
	if want := (models.BatchCounts{InProgress: models.ChunkRows, Settled: 1, Failed: 1}); batch.Counts != want ||
		batch.State != models.BatchInProgress {
		t.Errorf("cancelled in the middle: %+v", batch)
	}
	if rows[models.ChunkRows].Outcome != models.OutcomeCancelled || rows[0].Outcome != "" {
		t.Errorf("rows %+v, %+v", rows[0], rows[models.ChunkRows])
	}

	// Rows released after the cancellation are cancelled; the debited row stays debited.
	results := []models.RowResult{{Index: 0, Outcome: models.OutcomeSucceeded}, {Index: 1, Release: true},
		{Index: 2, Outcome: models.OutcomeTimedOut}}
	for i := 3; i < models.ChunkRows; i++ {
		results = append(results, models.RowResult{Index: i, Outcome: models.OutcomeCustomerNotActive})
	}
	finish(t, store, chunk, results...)
	entries := len(auditLog(t, store, models.AuditFilter{}))
	batch, rows, err = cancel(0) // a settled batch: the log still ends with the cancellation before
	if err != nil || batch.State != models.BatchSettled || batch.Counts.Succeeded != 1 {
		t.Errorf("cancelled again: %+v, %v", batch, err)
	}
	if n := len(auditLog(t, store, models.AuditFilter{})); n != entries {
		t.Errorf("%d entries, want %d: nothing was left to cancel", n, entries)
	}
	if rows[0].Outcome != models.OutcomeSucceeded || rows[1].Outcome != models.OutcomeCancelled ||
		rows[2].Outcome != models.OutcomeCancelled {
		t.Errorf("outcomes %s, %s, %s", rows[0].Outcome, rows[1].Outcome, rows[2].Outcome)
	}
	if _, _, err := store.CancelBatch(t.Context(), site.ID, "none"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("an unknown batch: %v", err)
	}
}

func TestPredictOutcomes(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Customer(t, store, site.ID, "linked", models.BehaviourPays)
	modelstest.Invite(t, store, site.ID, "invited")
	got, err := store.PredictOutcomes(t.Context(), site.ID, []string{"linked", "invited", "unknown", "linked"})
	if err != nil {
		t.Fatal(err)
	}
	want := []models.RowOutcome{
		models.OutcomeSucceeded, models.OutcomeCustomerNotActive, models.OutcomeCustomerNotActive,
		models.OutcomeSucceeded,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("predictions (-want +got):\n%s", diff)
	}
}
