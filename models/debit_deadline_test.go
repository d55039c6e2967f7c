package models_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// After the time for attempts, claims count no calls.
func TestAttemptsOfRowsClaimedToClose(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
	finish(t, store, claim(t, store, done.Tasks[0]), models.RowResult{Index: 0, Release: true})
	if _, err := store.RevokeCustomer(t.Context(), site.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	modelstest.AdvanceClock(t, store, models.SettleWithin-models.LastAttemptBefore)
	if closing := claim(t, store, done.Tasks[0]); closing.Phase != models.PhaseClose || len(closing.Rows) != 1 {
		t.Fatalf("claimed %+v", closing)
	}
	if r := row(t, store, site, "b", 0); r.State != models.RowInProgress || r.Attempts != 1 {
		t.Errorf("%+v", r)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "ada", "ada", "ada"))

	modelstest.AdvanceClock(t, store, models.SettleWithin-models.LastAttemptBefore)
	closing := claim(t, store, done.Tasks[0])
	if closing.Phase != models.PhaseClose || len(closing.Rows) != 4 {
		t.Fatalf("half an hour before the deadline: %s, %d rows", closing.Phase, len(closing.Rows))
	}
	finish(t, store, closing, models.RowResult{Index: 0, Outcome: models.OutcomeTimedOut},
		models.RowResult{Index: 1, RetryAfter: time.Minute})
	if _, err := store.CloseOverdueBatch(t.Context()); !errors.Is(err, models.ErrNotFound) {
		t.Fatalf("closed too early: %v", err)
	}

	modelstest.AdvanceClock(t, store, models.LastAttemptBefore)
	if id, err := store.CloseOverdueBatch(t.Context()); err != nil || id != done.Batch.ID {
		t.Fatalf("closed %s, %v", id, err)
	}
	batch, rows, err := store.GetBatch(t.Context(), site.ID, "b")
	if err != nil || batch.State != models.BatchSettled || batch.SettledAt != batch.SettleBy ||
		batch.Counts.Failed != 4 {
		t.Errorf("at the deadline: %+v, %v", batch, err)
	}
	if rows[0].Outcome != models.OutcomeTimedOut || rows[1].Outcome != models.OutcomeUnconfirmed ||
		rows[0].Attempts != 0 {
		t.Errorf("rows %+v", rows)
	}
	modelstest.Audit(t, store)

	// The closing worker's answer comes late, and the rail is asked about the other rows.
	if settled := finish(t, store, closing, models.RowResult{Index: 2,
		Outcome: models.OutcomeSucceeded}); len(settled) != 1 || !settled[0].Corrected {
		t.Errorf("a late success: %v", settled)
	}
	if settled := finish(t, store, closing, models.RowResult{Index: 3,
		Outcome: models.OutcomeDeclined}); len(settled) != 0 {
		t.Errorf("a late refusal without a lease: %v", settled)
	}
	if err := store.ParkChunk(t.Context(), done.Tasks[0]); err != nil {
		t.Fatal(err)
	}
	confirming := claim(t, store, done.Tasks[0])
	if confirming.Phase != models.PhaseConfirm || len(confirming.Rows) != 2 || confirming.Open != 2 {
		t.Fatalf("after the deadline: %+v", confirming)
	}
	finish(t, store, confirming, models.RowResult{Index: 1, Outcome: models.OutcomeTimedOut},
		models.RowResult{Index: 3, Outcome: models.OutcomeInsufficientFunds})
	_, rows, err = store.GetBatch(t.Context(), site.ID, "b")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []models.RowOutcome{"", models.OutcomeTimedOut, models.OutcomeSucceeded,
		models.OutcomeInsufficientFunds} {
		if rows[i].CorrectedOutcome != want {
			t.Errorf("row %d corrected to %q, want %q", i, rows[i].CorrectedOutcome, want)
		}
	}
	if n := tasksLeft(t, store); n != 0 {
		t.Errorf("%d tasks left", n)
	}
	var alerts []string
	if err := store.DB().NewRaw("SELECT kind || ' ' || detail FROM alerts ORDER BY 1").Scan(t.Context(),
		&alerts); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"lateTruth row row-1 of batch b: timedOut", "lateTruth row row-2 of batch b: succeeded",
		"lateTruth row row-3 of batch b: insufficientFunds", "rowsUnconfirmed 3 rows",
	}
	if diff := cmp.Diff(want, alerts); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

func TestNoReadShowsAnOpenBatchAfterItsDeadline(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	for _, reference := range []string{"read", "listed", "listed too"} {
		modelstest.Submit(t, store, modelstest.Batch(site, reference, "ada"))
	}
	modelstest.AdvanceClock(t, store, models.SettleWithin-time.Millisecond)
	if batch, _, err := store.GetBatch(t.Context(), site.ID, "read"); err != nil ||
		batch.State != models.BatchInProgress {
		t.Errorf("one millisecond before: %+v, %v", batch, err)
	}
	modelstest.AdvanceClock(t, store, time.Millisecond) // and no sweep runs
	batch, rows, err := store.GetBatch(t.Context(), site.ID, "read")
	if err != nil || batch.State != models.BatchSettled || rows[0].Outcome != models.OutcomeTimedOut {
		t.Errorf("at the deadline: %+v, %+v, %v", batch, rows, err)
	}
	page, err := store.ListBatches(t.Context(), models.BatchQuery{SiteID: site.ID, Direction: models.Forward,
		Limit: 10})
	if err != nil || len(page.Items) != 3 {
		t.Fatalf("listed %+v, %v", page, err)
	}
	for _, b := range page.Items {
		if b.State != models.BatchSettled {
			t.Errorf("listed %+v", b)
		}
	}
	modelstest.Audit(t, store)
}

func TestUnconfirmedRowsAreGivenUpInTheEnd(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada"))
	modelstest.AdvanceClock(t, store, models.SettleWithin)
	if _, err := store.CloseOverdueBatch(t.Context()); err != nil {
		t.Fatal(err)
	}
	modelstest.AdvanceClock(t, store, models.ConfirmWithin)
	if err := store.ParkChunk(t.Context(), done.Tasks[0]); err != nil {
		t.Fatal(err)
	}
	if n := tasksLeft(t, store); n != 0 {
		t.Errorf("%d tasks left when the rail no longer keeps the key", n)
	}
}
