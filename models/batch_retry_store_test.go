package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// retrying is a store with a settled batch "parent".
type retrying struct {
	store *models.Store
	site  models.Site
}

// newRetrying settles a batch of a customer for each outcome.
func newRetrying(t *testing.T, outcomes ...models.RowOutcome) *retrying {
	t.Helper()
	r := &retrying{store: modelstest.Open(t)}
	r.site = modelstest.Site(t, r.store)
	customers := make([]string, len(outcomes))
	for i := range customers {
		customers[i] = fmt.Sprint("customer ", i)
	}
	done := modelstest.Submit(t, r.store, modelstest.Batch(r.site, "parent", customers...))
	r.settle(t, done, outcomes...)
	return r
}

// settle settles the rows of a batch's only chunk.
func (r *retrying) settle(t *testing.T, done models.Submission, outcomes ...models.RowOutcome) {
	t.Helper()
	results := make([]models.RowResult, len(outcomes))
	for i, o := range outcomes {
		results[i] = models.RowResult{Index: i, Outcome: o}
	}
	finish(t, r.store, claim(t, r.store, done.Tasks[0]), results...)
}

func (r *retrying) retry(t testing.TB, parent, reference string) (models.Submission, error) {
	return r.store.RetryBatch(t.Context(), models.NewRetry{
		SiteID: r.site.ID, OrganisationID: r.site.OrganisationID, Parent: parent, Reference: reference,
		TraceID: models.NewTraceID(),
	})
}

func (r *retrying) mustRetry(t testing.TB, parent, reference string) models.Submission {
	t.Helper()
	done, err := r.retry(t, parent, reference)
	if err != nil || done.Replayed {
		t.Fatalf("retry %s as %s: %+v, %v", parent, reference, done, err)
	}
	return done
}

func (r *retrying) batch(t testing.TB, reference string) (models.Batch, []models.BatchRow) {
	t.Helper()
	batch, rows, err := r.store.GetBatch(t.Context(), r.site.ID, reference)
	must(t, err)
	return batch, rows
}

func TestRetryTakesTheRowsThatMaySucceedLater(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.RowOutcomes...)
	done := r.mustRetry(t, "parent", "child")
	if b := done.Batch; b.RetryOf != "parent" || b.Generation != 1 || b.Counts != (models.BatchCounts{Pending: 4}) ||
		b.TotalAmount != 102+103+104+107 || len(done.Tasks) != 1 {
		t.Errorf("receipt %+v, %d tasks", b, len(done.Tasks))
	}
	parent, _ := r.batch(t, "parent")
	child, rows := r.batch(t, "child")
	if parent.RetriedAs != "child" || child.RetryOf != "parent" || parent.RetryOf+child.RetriedAs != "" {
		t.Errorf("parent %+v, child %+v", parent, child)
	}
	var got []string
	for _, row := range rows {
		got = append(got, fmt.Sprint(row.Index, " ", row.RowReference, " ", row.CustomerReference, " ", row.Amount))
	}
	want := []string{"0 row-2 customer 2 102", "1 row-3 customer 3 103", "2 row-4 customer 4 104",
		"3 row-7 customer 7 107"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows to retry (-want +got):\n%s", diff)
	}
	claimed := claim(t, r.store, done.Tasks[0]).Rows
	if got, want := claimed[0].RailKey, models.NewBatchKey(r.site.ID, "child", 1).Row("row-2"); got != want {
		t.Errorf("rail key %s, want %s", got, want)
	}
	modelstest.Audit(t, r.store)
}

func TestRetryLeavesCorrectedRowsOut(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.OutcomeTimedOut, models.OutcomeInsufficientFunds)
	chunk := models.Chunk{SiteID: r.site.ID, BatchReference: "parent", Generation: 1, Lease: models.NewLeaseToken()}
	batch, _ := r.batch(t, "parent")
	chunk.BatchID = batch.ID
	// the truth, late
	finish(t, r.store, chunk, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded, FromRail: true})
	if _, rows := r.batch(t, "parent"); rows[0].CorrectedOutcome != models.OutcomeSucceeded {
		t.Fatalf("row %+v", rows[0])
	}
	r.mustRetry(t, "parent", "child")
	if _, rows := r.batch(t, "child"); len(rows) != 1 || rows[0].RowReference != "row-1" {
		t.Errorf("rows %+v", rows)
	}
}

func TestRetryIsOnce(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.OutcomeTimedOut)
	first := r.mustRetry(t, "parent", "child")
	again, err := r.retry(t, "parent", "child")
	if err != nil || !again.Replayed || again.Batch != first.Batch || len(again.Tasks) != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	if _, err := r.retry(t, "parent", "other"); !errors.Is(err, models.ErrAlreadyRetried) {
		t.Errorf("under another reference: %v", err)
	}
	// The child can be retried, too.
	if _, err := r.retry(t, "child", "grandchild"); !errors.Is(err, models.ErrBatchInProgress) {
		t.Errorf("in progress: %v", err)
	}
	r.settle(t, first, models.OutcomeLimitExceeded)
	if b := r.mustRetry(t, "child", "grandchild").Batch; b.RetryOf != "child" {
		t.Errorf("grandchild %+v", b)
	}
	if again, err = r.retry(t, "parent", "child"); err != nil || !again.Replayed {
		t.Errorf("once the child is settled: %+v, %v", again, err)
	}
}

func TestRetryRefusals(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.OutcomeTimedOut)
	modelstest.Submit(t, r.store, modelstest.Batch(r.site, "open", "ada"))
	r.settle(t, modelstest.Submit(t, r.store, modelstest.Batch(r.site, "hopeless", "a", "b", "c")),
		models.OutcomeUnconfirmed, models.OutcomeSucceeded, models.OutcomeDeclined)
	for _, c := range []struct {
		parent, reference string
		want              error
	}{
		{"none", "child", models.ErrNotFound},
		{"open", "child", models.ErrBatchInProgress},
		{"hopeless", "child", models.ErrNothingToRetry},
		{"parent", "open", models.ErrBatchReferenceTaken},
		{"parent", "hopeless", models.ErrBatchReferenceTaken},
		{"parent", "parent", models.ErrBatchReferenceTaken},
	} {
		if _, err := r.retry(t, c.parent, c.reference); !errors.Is(err, c.want) {
			t.Errorf("%s as %s: %v, want %v", c.parent, c.reference, err, c.want)
		}
	}
	if parent, _ := r.batch(t, "parent"); parent.RetriedAs != "" {
		t.Errorf("a refused retry is written down: %+v", parent)
	}
	r.mustRetry(t, "parent", "child")
}

// Rows stay bound to the customer of their parent rows, also when the reference has a new link.
func TestRetryKeepsLinks(t *testing.T) {
	t.Parallel()
	r := &retrying{store: modelstest.Open(t)}
	r.site = modelstest.Site(t, r.store)
	kept := modelstest.Customer(t, r.store, r.site.ID, "kept", models.BehaviourPays)
	before := modelstest.Customer(t, r.store, r.site.ID, "reused", models.BehaviourPays)
	done := modelstest.Submit(t, r.store, modelstest.Batch(r.site, "parent", "kept", "reused", "late"))
	r.settle(t, done, models.OutcomeInsufficientFunds, models.OutcomeInsufficientFunds, models.OutcomeTimedOut)
	_, err := r.store.RevokeCustomer(t.Context(), r.site.ID, "reused")
	must(t, err)
	modelstest.Customer(t, r.store, r.site.ID, "reused", models.BehaviourPays)
	late := modelstest.Customer(t, r.store, r.site.ID, "late", models.BehaviourPays)

	chunk := claim(t, r.store, r.mustRetry(t, "parent", "child").Tasks[0])
	type account struct {
		Link   models.LinkID
		Linked bool
	}
	var got []account
	for _, row := range chunk.Rows {
		got = append(got, account{row.Account.LinkID, row.Account.Linked})
	}
	if diff := cmp.Diff([]account{{kept.ID, true}, {before.ID, false}, {late.ID, true}}, got); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

func TestRetriesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.OutcomeTimedOut, models.OutcomeTimedOut)
	told := func(done models.Submission, err error) string {
		if errors.Is(err, models.ErrAlreadyRetried) {
			return "already retried"
		}
		return submitted(done, err)
	}
	got := race(8, func(i int) string { return told(r.retry(t, "parent", fmt.Sprint("child ", i))) })
	if diff := cmp.Diff(map[string]int{"created": 1, "already retried": 7}, got); diff != "" {
		t.Errorf("8 references (-want +got):\n%s", diff)
	}
	parent, _ := r.batch(t, "parent")
	got = race(8, func(int) string { return told(r.retry(t, "parent", parent.RetriedAs)) })
	if diff := cmp.Diff(map[string]int{"replayed": 8}, got); diff != "" {
		t.Errorf("8 repetitions (-want +got):\n%s", diff)
	}
	page, err := r.store.ListBatches(t.Context(), models.BatchQuery{SiteID: r.site.ID, Limit: 10,
		Direction: models.Forward})
	must(t, err)
	if page.Total != 2 || page.Items[0].RetryOf != "parent" {
		t.Errorf("batches %+v", page.Items)
	}
}

// Concurrent retries of two batches under each other's references do not deadlock.
func TestRetriesOfEachOther(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.OutcomeTimedOut)
	r.settle(t, modelstest.Submit(t, r.store, modelstest.Batch(r.site, "other", "ada")), models.OutcomeTimedOut)
	names := []string{"parent", "other"}
	got := race(16, func(i int) string {
		_, err := r.retry(t, names[i%2], names[1-i%2])
		if !errors.Is(err, models.ErrBatchReferenceTaken) {
			return fmt.Sprint(err)
		}
		return "taken"
	})
	if diff := cmp.Diff(map[string]int{"taken": 16}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A crash between inserting the child and marking its parent leaves neither.
func TestRetryIsOneTransaction(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.OutcomeTimedOut)
	_, err := r.store.DB().ExecContext(t.Context(), `
CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'crash'; END $$;
CREATE TRIGGER crash BEFORE UPDATE OF retried_as ON batches FOR EACH ROW EXECUTE FUNCTION crash()`)
	must(t, err)
	_, err = r.retry(t, "parent", "child")
	if err == nil || !strings.Contains(err.Error(), "crash") {
		t.Fatalf("no crash: %v", err)
	}
	if errors.Is(err, models.ErrAlreadyRetried) {
		t.Errorf("a failure counts as an earlier retry: %v", err)
	}
	if _, _, err := r.store.GetBatch(t.Context(), r.site.ID, "child"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("the child: %v", err)
	}
	if n := tasksLeft(t, r.store); n != 0 {
		t.Errorf("%d tasks", n)
	}
	_, err = r.store.DB().ExecContext(t.Context(), "DROP TRIGGER crash ON batches")
	must(t, err)
	if b := r.mustRetry(t, "parent", "child").Batch; b.Generation != 1 {
		t.Errorf("generation %d", b.Generation)
	}
}

func TestRetryAcrossRetention(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	r := &retrying{store: store, site: modelstest.Site(t, store)}
	r.settle(t, modelstest.Submit(t, store, modelstest.Batch(r.site, "old", "ada")), models.OutcomeTimedOut)
	modelstest.AdvanceClock(t, store, time.Millisecond)
	r.settle(t, modelstest.Submit(t, store, modelstest.Batch(r.site, "parent", "ada")), models.OutcomeTimedOut)

	modelstest.AdvanceClock(t, store, models.BatchRetention-time.Millisecond)
	if b := r.mustRetry(t, "parent", "old").Batch; b.Generation != 2 { // the first batch is still stored
		t.Errorf("generation %d", b.Generation)
	}
	modelstest.AdvanceClock(t, store, time.Millisecond)
	if _, err := r.retry(t, "parent", "old"); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a parent past its retention: %v", err)
	}
	if b, _ := r.batch(t, "old"); b.RetryOf != "parent" {
		t.Errorf("the child outlives its parent: %+v", b)
	}
}

// A retry settles an overdue parent, even before a sweep.
func TestRetryAtTheDeadline(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, noon)
	r := &retrying{store: store, site: modelstest.Site(t, store)}
	modelstest.Submit(t, store, modelstest.Batch(r.site, "parent", "ada"))
	modelstest.AdvanceClock(t, store, models.SettleWithin-time.Millisecond)
	if _, err := r.retry(t, "parent", "child"); !errors.Is(err, models.ErrBatchInProgress) {
		t.Errorf("one millisecond before: %v", err)
	}
	modelstest.AdvanceClock(t, store, time.Millisecond)
	r.mustRetry(t, "parent", "child")
	if b, rows := r.batch(t, "parent"); b.State != models.BatchSettled || rows[0].Outcome != models.OutcomeTimedOut {
		t.Errorf("parent %+v, %+v", b, rows)
	}
}

// A plain submission under the child's reference is a conflict, with the same rows or not.
func TestSubmissionUnderTheReferenceOfARetry(t *testing.T) {
	t.Parallel()
	r := newRetrying(t, models.OutcomeTimedOut)
	r.mustRetry(t, "parent", "child")
	done, err := r.store.SubmitBatch(t.Context(), modelstest.Batch(r.site, "child", "customer 0"))
	if err != nil || done.Conflict == nil || len(done.Conflict.Rows) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}
