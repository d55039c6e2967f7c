package models_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func claim(t testing.TB, store *models.Store, task models.TaskID) models.Chunk {
	t.Helper()
	chunk, err := store.ClaimChunk(t.Context(), task, models.NewLeaseToken(), models.Part{Rows: models.ChunkRows})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return chunk
}

func finish(t testing.TB, store *models.Store, chunk models.Chunk, results ...models.RowResult) []models.SettledRow {
	t.Helper()
	key := models.NewBatchKey(chunk.SiteID, chunk.BatchReference, chunk.Generation)
	for i := range results {
		results[i].RailKey = key.Row(fmt.Sprint("row-", results[i].Index))
		results[i].Confirming = chunk.Phase == models.PhaseConfirm
	}
	settled, err := store.FinishRows(t.Context(), chunk, results, chunk.Open)
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return settled
}

// expireLeases simulates that every worker has died and its leases have expired.
func expireLeases(t testing.TB, store *models.Store) {
	t.Helper()
	for _, query := range []string{
		"UPDATE batch_rows SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL",
		"UPDATE outbox SET redispatch_after = clock_timestamp() WHERE redispatch_after IS NOT NULL",
	} {
		if _, err := store.DB().ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
}

func tasksLeft(t testing.TB, store *models.Store) int {
	t.Helper()
	var n int
	if err := store.DB().NewRaw("SELECT count(*) FROM outbox").Scan(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func row(t testing.TB, store *models.Store, site models.Site, batch string, index int) models.BatchRow {
	t.Helper()
	_, rows, err := store.GetBatch(t.Context(), site.ID, batch)
	if err != nil {
		t.Fatal(err)
	}
	return rows[index]
}

func TestChunkSettles(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	link := modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "unknown"))

	chunk := claim(t, store, done.Tasks[0])
	key := models.NewBatchKey(site.ID, "b", 1)
	want := []models.ClaimedRow{
		{Index: 0, CustomerReference: "ada", RailKey: key.Row("row-0"), Amount: 100, Account: models.DebitAccount{
			LinkID: link.ID, Linked: true, CustomerID: "customer of " + link.ID.String(),
			AgreementID: modelstest.Agreement(link),
		}},
		{Index: 1, CustomerReference: "unknown", RailKey: key.Row("row-1"), Amount: 101},
	}
	if diff := cmp.Diff(want, chunk.Rows); diff != "" {
		t.Errorf("claimed rows (-want +got):\n%s", diff)
	}
	if chunk.Phase != models.PhaseAttempt || chunk.Open != 2 || chunk.Currency != "AUD" {
		t.Errorf("chunk %+v", chunk)
	}
	if again := claim(t, store, done.Tasks[0]); len(again.Rows) != 0 || again.Open != 2 {
		t.Errorf("a second worker claimed %d rows of %d", len(again.Rows), again.Open)
	}

	settled := finish(t, store, chunk,
		models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded},
		models.RowResult{Index: 1, Outcome: models.OutcomeCustomerNotActive, Calls: -1})
	if len(settled) != 2 || tasksLeft(t, store) != 0 {
		t.Errorf("settled %v, %d tasks left", settled, tasksLeft(t, store))
	}
	batch, rows, err := store.GetBatch(t.Context(), site.ID, "b")
	if err != nil {
		t.Fatal(err)
	}
	if batch.State != models.BatchSettled || batch.SettledAt == 0 || batch.SucceededAmount != 100 ||
		batch.Counts != (models.BatchCounts{Settled: 2, Succeeded: 1, Failed: 1}) {
		t.Errorf("batch %+v", batch)
	}
	if rows[0].Attempts != 1 || rows[1].Attempts != 0 {
		t.Errorf("attempts %d and %d", rows[0].Attempts, rows[1].Attempts)
	}
	if _, err := store.ClaimChunk(t.Context(), done.Tasks[0], models.NewLeaseToken(),
		models.Part{Rows: models.ChunkRows}); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a task that is done: %v", err)
	}
	modelstest.Audit(t, store)
}

// A claim counts its call in advance, but the shown count leaves out a call that cannot be made.
// The shown count of a row never falls.
func TestAttemptsOfClaimedRows(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	for _, reference := range []string{"ada", "bob"} {
		modelstest.Customer(t, store, site.ID, reference, models.BehaviourPays)
	}
	modelstest.Invite(t, store, site.ID, "invited")
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "bob", "invited", "unknown"))
	want := func(when string, attempts ...int) {
		t.Helper()
		_, rows, err := store.GetBatch(t.Context(), site.ID, "b")
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, r := range rows {
			got = append(got, r.Attempts)
		}
		if diff := cmp.Diff(attempts, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	version := func() models.BatchVersion {
		t.Helper()
		v, err := store.BatchVersion(t.Context(), site.ID, "b")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	claimed := claim(t, store, done.Tasks[0])
	want("claimed", 1, 1, 0, 0)
	before := version()
	if _, err := store.RevokeCustomer(t.Context(), site.ID, "invited"); err != nil {
		t.Fatal(err)
	}
	if after := version(); after != before {
		t.Errorf("the version is %+v after %+v, and nothing has changed", after, before)
	}
	finish(t, store, claimed, models.RowResult{Index: 0, Release: true},
		models.RowResult{Index: 2, Release: true, Calls: -1})
	want("given back", 1, 1, 0, 0)
	if _, err := store.RevokeCustomer(t.Context(), site.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	claim(t, store, done.Tasks[0])
	want("claimed again", 1, 1, 0, 0)
	before = version()
	expireLeases(t, store)
	claim(t, store, done.Tasks[0])
	want("in doubt", 2, 1, 1, 1)
	if version() == before {
		t.Error("the version does not tell of attempts")
	}
}

// The check right before a debit reports every change since the claim.
func TestEligibilityIsReadAgain(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	modelstest.Customer(t, store, site.ID, "bob", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "bob", "nobody"))
	chunk := claim(t, store, done.Tasks[0])
	want := map[int]models.Eligibility{}
	for _, r := range chunk.Rows {
		want[r.Index] = models.Eligibility{Phase: models.PhaseAttempt, Account: r.Account}
	}
	look := func(what string) {
		t.Helper()
		for name, read := range map[string]func(context.Context, models.Chunk, []int) (map[int]models.Eligibility,
			error){
			"check": store.CheckRows, "extend": store.ExtendRows,
		} {
			got, err := read(t.Context(), chunk, []int{0, 1, 2})
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s, %s: %v (-want +got):\n%s", what, name, err, diff)
			}
		}
	}
	change := func(what string, to func(*models.Eligibility)) {
		t.Helper()
		for i, e := range want {
			to(&e)
			want[i] = e
		}
		look(what)
	}
	look("claimed")
	if _, err := store.RevokeCustomer(t.Context(), site.ID, "bob"); err != nil {
		t.Fatal(err)
	}
	bob := want[1]
	bob.Account.Linked = false
	want[1] = bob
	look("revoked")
	if _, _, err := store.CancelBatch(t.Context(), site.ID, "b"); err != nil {
		t.Fatal(err)
	}
	change("cancelled", func(e *models.Eligibility) { e.Cancelled = true })
	modelstest.AdvanceClock(t, store, models.SettleWithin-models.LastAttemptBefore-time.Millisecond)
	look("right before the last half hour")
	modelstest.AdvanceClock(t, store, time.Millisecond)
	change("in the last half hour", func(e *models.Eligibility) { e.Phase = models.PhaseClose })
	modelstest.AdvanceClock(t, store, models.LastAttemptBefore)
	change("at the deadline", func(e *models.Eligibility) { e.Phase = models.PhaseConfirm })
}

// A worker must stop work on rows that it has lost, and on those of a held batch. Its heartbeat
// then changes neither the rows' leases nor the task's next dispatch.
func TestLostRowsAreNotExtended(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *models.Store){
		"expired": func(t *testing.T, store *models.Store) { expireLeases(t, store) },
		"held": func(t *testing.T, store *models.Store) {
			_, err := store.BeginEpoch(t.Context())
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := modelstest.Open(t)
			site := modelstest.Site(t, store)
			modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
			task := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "ada")).Tasks[0]
			claimTask(t, store, task)
			chunk := claim(t, store, task)
			type leases struct{ Row, Task time.Time }
			read := func() (l leases) {
				must(t, store.DB().NewRaw(`
SELECT (SELECT max(lease_until) FROM batch_rows), redispatch_after FROM outbox WHERE id = ?`, task).
					Scan(t.Context(), &l.Row, &l.Task))
				return l
			}
			lose(t, store)
			before := read()
			held, err := store.ExtendRows(t.Context(), chunk, []int{0, 1})
			if err != nil || len(held) != 0 {
				t.Errorf("lost rows seem to be held: %v, %v", held, err)
			}
			if diff := cmp.Diff(before, read()); diff != "" {
				t.Errorf("leases (-before +after):\n%s", diff)
			}
		})
	}
}

func TestDeadWorkersRowsAreInDoubt(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "ada"))
	dead := claim(t, store, done.Tasks[0])
	expireLeases(t, store)

	if held, err := store.CheckRows(t.Context(), dead, []int{0, 1}); err != nil || len(held) != 0 {
		t.Errorf("a dead worker's rows seem to be its own: %v, %v", held, err)
	}
	if held, err := store.ExtendRows(t.Context(), dead, []int{0, 1}); err != nil || len(held) != 0 {
		t.Errorf("a lease that ran out was extended: %v, %v", held, err)
	}
	heir := claim(t, store, done.Tasks[0])
	if held, err := store.ExtendRows(t.Context(), heir, []int{0, 1}); err != nil || len(held) != 2 {
		t.Errorf("the heir's rows are not its own: %v, %v", held, err)
	}
	if len(heir.Rows) != 2 || !heir.Rows[0].InDoubt || !heir.Rows[1].InDoubt {
		t.Fatalf("the heir claimed %+v", heir.Rows)
	}

	// The dead worker wakes up: its refusal changes nothing, its success counts.
	if settled := finish(t, store, dead, models.RowResult{Index: 0, Outcome: models.OutcomeDeclined}); len(
		settled) != 0 {
		t.Errorf("a late refusal settled %v", settled)
	}
	if settled := finish(t, store, dead, models.RowResult{Index: 1, Release: true}); len(settled) != 0 {
		t.Errorf("a late release changed %v", settled)
	}
	if settled := finish(t, store, dead, models.RowResult{Index: 1, Outcome: models.OutcomeSucceeded}); len(
		settled) != 1 {
		t.Errorf("a late success settled %v", settled)
	}
	settled := finish(t, store, heir, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded},
		models.RowResult{Index: 1, Outcome: models.OutcomeSucceeded})
	if len(settled) != 1 {
		t.Errorf("the heir settled %v", settled)
	}
	batch, _, err := store.GetBatch(t.Context(), site.ID, "b")
	if err != nil || batch.Counts.Succeeded != 2 || batch.SucceededAmount != 201 {
		t.Errorf("batch %+v, %v", batch, err)
	}
}

func TestUnansweredRowWaitsAndStaysInDoubt(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "ada", "ada"))
	chunk := claim(t, store, done.Tasks[0])
	finish(t, store, chunk,
		models.RowResult{Index: 0, RetryAfter: time.Second},
		models.RowResult{Index: 1, Release: true, RetryAfter: 3 * time.Second})
	if r := row(t, store, site, "b", 0); r.State != models.RowInProgress || r.NextAttemptAt != 1_800_000_001_000 {
		t.Errorf("in doubt: %+v", r)
	}
	if r := row(t, store, site, "b", 1); r.State != models.RowPending || r.NextAttemptAt != 1_800_000_003_000 ||
		r.Attempts != 1 {
		t.Errorf("released: %+v", r)
	}
	if err := store.ParkChunk(t.Context(), done.Tasks[0]); err != nil {
		t.Fatal(err)
	}
	if due := dueTasks(t, store); len(due) != 0 {
		t.Errorf("due at once: %v", due)
	}
	modelstest.AdvanceClock(t, store, time.Second)
	if due := dueTasks(t, store); len(due) != 1 {
		t.Fatalf("due after a second: %v", due)
	}
	chunk = claim(t, store, done.Tasks[0])
	if len(chunk.Rows) != 1 || !chunk.Rows[0].InDoubt || chunk.Rows[0].Deferrals != 1 {
		t.Errorf("claimed %+v", chunk.Rows)
	}
	finish(t, store, chunk, models.RowResult{Index: 0, Outcome: models.OutcomeSucceeded, Calls: 1})
	if err := store.ParkChunk(t.Context(), done.Tasks[0]); err != nil {
		t.Fatal(err)
	}
	modelstest.AdvanceClock(t, store, 2*time.Second)
	if due := dueTasks(t, store); len(due) != 1 {
		t.Fatalf("due after three seconds: %v", due)
	}
	if chunk = claim(t, store, done.Tasks[0]); len(chunk.Rows) != 1 || chunk.Rows[0].Index != 1 ||
		chunk.Rows[0].InDoubt {
		t.Errorf("claimed %+v", chunk.Rows)
	}
	if r := row(t, store, site, "b", 0); r.Attempts != 2 {
		t.Errorf("attempts %d", r.Attempts)
	}
}

func TestRowsBindOnce(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	old := modelstest.Customer(t, store, site.ID, "reused", models.BehaviourPays)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "reused", "later"))
	if _, err := store.RevokeLink(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	modelstest.Customer(t, store, site.ID, "reused", models.BehaviourPays)
	later := modelstest.Customer(t, store, site.ID, "later", models.BehaviourPays)

	chunk := claim(t, store, done.Tasks[0])
	if a := chunk.Rows[0].Account; a.LinkID != old.ID || a.Linked {
		t.Errorf("a row bound at submission follows its reference to another person: %+v", a)
	}
	if a := chunk.Rows[1].Account; a.LinkID != later.ID || !a.Linked {
		t.Errorf("a row without a link at submission does not bind at its first attempt: %+v", a)
	}
	finish(t, store, chunk, models.RowResult{Index: 1, Release: true})
	if _, err := store.RevokeLink(t.Context(), later.ID); err != nil {
		t.Fatal(err)
	}
	modelstest.Customer(t, store, site.ID, "later", models.BehaviourPays)
	if a := claim(t, store, done.Tasks[0]).Rows[0].Account; a.LinkID != later.ID || a.Linked {
		t.Errorf("a row bound at its first attempt binds again: %+v", a)
	}
}
