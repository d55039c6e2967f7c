package models_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func dueTasks(t testing.TB, store *models.Store) []models.Task {
	t.Helper()
	tasks, err := store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueDebits, Limit: 1000, InFlight: 1000})
	if err != nil {
		t.Fatalf("claim due: %v", err)
	}
	return tasks
}

func TestTasksGoOutOnceAndAgainWhenLost(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", "x"))

	first := dueTasks(t, store)
	want := []models.Task{{
		ID: done.Tasks[0], Kind: models.TaskDebitRows, OrganisationID: site.OrganisationID, SiteID: site.ID,
		TraceID: first[0].TraceID, Epoch: 1, Rows: 1,
	}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Fatalf("due (-want +got):\n%s", diff)
	}
	if again := dueTasks(t, store); len(again) != 0 {
		t.Errorf("claimed twice: %v", again)
	}
	if n, err := store.ReclaimLost(t.Context(), models.AnyTime, 10); n != 0 || err != nil {
		t.Errorf("reclaimed %d under a lease, %v", n, err)
	}

	if err := store.ReleaseTasks(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second := dueTasks(t, store)
	if len(second) != 1 || second[0].Epoch != 2 {
		t.Fatalf("after the release: %v", second)
	}
	if err := store.ReleaseTasks(t.Context(), first); err != nil { // a release that comes late
		t.Fatal(err)
	}
	if again := dueTasks(t, store); len(again) != 0 {
		t.Errorf("an older epoch released the task: %v", again)
	}

	if err := store.ConfirmDispatched(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	expireLeases(t, store)
	if n, err := store.ReclaimLost(t.Context(), models.AnyTime, 10); n != 1 || err != nil {
		t.Errorf("reclaimed %d, %v", n, err)
	}
	if third := dueTasks(t, store); len(third) != 1 || third[0].Epoch != 3 {
		t.Errorf("after the lease: %v", third)
	}
	if n, err := store.ReclaimQueue(t.Context(), models.QueueDebits); n != 1 || err != nil {
		t.Errorf("reclaimed %d of all, %v", n, err)
	}
}

// A late confirmation does not delay a task whose worker has died.
func TestLateConfirmationLengthensNoLease(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.Submit(t, store, modelstest.Batch(modelstest.Site(t, store), "b", "x"))
	claimed := dueTasks(t, store)
	if _, err := store.DB().ExecContext(t.Context(),
		`UPDATE outbox SET dispatched_at = dispatched_at - interval '2 s'`); err != nil {
		t.Fatal(err)
	}
	if err := store.ConfirmDispatched(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	var seconds float64
	if err := store.DB().NewRaw(`SELECT extract(epoch FROM redispatch_after - dispatched_at)::float8 FROM outbox`).
		Scan(t.Context(), &seconds); err != nil {
		t.Fatal(err)
	}
	if seconds != models.QueuedLease.Seconds() {
		t.Errorf("%v s after it went out it counts as lost, want %s", seconds, models.QueuedLease)
	}
}

func TestDispatchIsFair(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	large, small := modelstest.Site(t, store), modelstest.Site(t, store)
	second, err := store.CreateSite(t.Context(), large.OrganisationID, "second Site")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		modelstest.Submit(t, store, modelstest.Batch(large, fmt.Sprint(i), make([]string, 5*models.ChunkRows)...))
	}
	modelstest.Submit(t, store, modelstest.Batch(second, "b", make([]string, 5*models.ChunkRows)...))
	modelstest.Submit(t, store, modelstest.Batch(small, "b", make([]string, 3*models.ChunkRows)...))

	take := func(limit int) map[string]int {
		tasks, err := store.ClaimDue(t.Context(),
			models.Dispatch{Queue: models.QueueDebits, Limit: limit, InFlight: 10})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, task := range tasks {
			got[map[models.SiteID]string{large.ID: "large", second.ID: "second", small.ID: "small"}[task.SiteID]]++
		}
		return got
	}
	if diff := cmp.Diff(map[string]int{"large": 1, "second": 1, "small": 2}, take(4)); diff != "" {
		t.Errorf("organisations, then Sites, take turns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"large": 4, "second": 4, "small": 1}, take(100)); diff != "" {
		t.Errorf("the large organisation has 10 in flight at most (-want +got):\n%s", diff)
	}
	if got := take(100); len(got) != 0 {
		t.Errorf("beyond the cap: %v", got)
	}
}

// TestFewestInFlightComesFirst lets one task through at a time, as in a busy fleet.
func TestFewestInFlightComesFirst(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	large := modelstest.Site(t, store)
	second, err := store.CreateSite(t.Context(), large.OrganisationID, "second Site")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		modelstest.Submit(t, store, modelstest.Batch(large, fmt.Sprint(i), make([]string, 5*models.ChunkRows)...))
	}
	modelstest.Submit(t, store, modelstest.Batch(second, "b", make([]string, 5*models.ChunkRows)...))
	claim := func(total int) models.Task {
		tasks, err := store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueDebits, Limit: 100, InFlight: 15,
			Total: total})
		if err != nil || len(tasks) != 1 {
			t.Fatalf("claimed %v where there was room for one, %v", tasks, err)
		}
		return tasks[0]
	}
	perSite := map[models.SiteID]int{}
	var last models.Task
	for total := range 10 {
		last = claim(total + 1)
		perSite[last.SiteID]++
	}
	if perSite[large.ID] != 5 || perSite[second.ID] != 5 {
		t.Errorf("the Sites of one organisation did not take turns: %v", perSite)
	}
	newcomer := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(newcomer, "b", "x"))
	bounds := models.Dispatch{Queue: models.QueueDebits, InFlight: 15, Total: 10}
	if tasks, err := store.ClaimTasks(t.Context(), done.Tasks, bounds, models.Dispatch{InFlight: 16}); err != nil ||
		len(tasks) != 0 {
		t.Errorf("beyond the total: %v, %v", tasks, err)
	}
	if err := store.FinishTask(t.Context(), last.ID); err != nil {
		t.Fatal(err)
	}
	if next := claim(10); next.ID != done.Tasks[0] {
		t.Errorf("the next place went to %v, not to the newcomer", next)
	}
	fewer := models.Dispatch{Queue: models.QueueDebits, Limit: 100, InFlight: 15, Total: 5} // as when workers have gone
	if tasks, err := store.ClaimDue(t.Context(), fewer); err != nil || len(tasks) != 0 {
		t.Errorf("with more in flight than there is room for: %v, %v", tasks, err)
	}
}

// TestDispatchReadsNoBacklog compares the blocks that a claim reads before and after a hundredfold
// backlog.
func TestDispatchReadsNoBacklog(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	backlog := func(tasks int) int {
		if _, err := store.DB().ExecContext(t.Context(), `
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at)
SELECT gen_random_uuid(), 'debitRows', 'debits', ?, ?, gen_random_uuid(), n FROM generate_series(1, ?) n`,
			site.OrganisationID, site.ID, tasks); err != nil {
			t.Fatal(err)
		}
		blocks := blocksRead(t, store, models.ClaimDueSQL, "debits", 100, 12, 1000, 1_000_000, 1)
		if _, err := store.ReclaimQueue(t.Context(), models.QueueDebits); err != nil {
			t.Fatal(err)
		}
		return blocks
	}
	small := backlog(1000)
	if large := backlog(100_000); small == 0 || large > 1000 { // all of them are in more than 4,000
		t.Errorf("a claim reads %d blocks with 1,000 tasks waiting, %d with 101,000", small, large)
	}
}

// blocksRead runs a statement and returns the number of blocks that Postgres reads.
func blocksRead(t *testing.T, store *models.Store, query string, args ...any) int {
	t.Helper()
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	var text []byte
	err := store.DB().DB.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query,
		args...).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		t.Fatal(err)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// The frequent search for expired leases reads no tasks with live leases.
func TestLookingForLostTasksReadsNoOthers(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	if _, err := store.DB().ExecContext(t.Context(), `
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at, dispatched_at,
	redispatch_after)
SELECT gen_random_uuid(), 'deliverWebhook', 'webhooks', ?, ?, gen_random_uuid(), 1, now(),
	now() + n * interval '1 minute'
FROM generate_series(1, 20000) n`, site.OrganisationID, site.ID); err != nil {
		t.Fatal(err)
	}
	// all of them are in more than 400
	blocks := blocksRead(t, store, models.ReclaimLostSQL, models.Queues, models.AnyTime.Milliseconds(), 1000)
	if blocks == 0 || blocks > 100 {
		t.Errorf("a look reads %d blocks with 20,000 tasks in flight", blocks)
	}
}

// A task counts against caps during any lease, and until it is made due again. A task whose lease
// has long ended, or a retry that waits in Redis, does not count.
func TestTasksInFlight(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	inFlight := func(lease, due time.Duration) (n int) {
		t.Helper()
		_, err := store.DB().ExecContext(t.Context(), "DELETE FROM outbox")
		must(t, err)
		_, err = store.DB().ExecContext(t.Context(), `
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at, dispatched_at,
	redispatch_after)
SELECT gen_random_uuid(), 'deliverWebhook', 'webhooks', ?, ?, gen_random_uuid(), svc_now() + ?, now(),
	now() + ? * interval '1 ms'`, site.OrganisationID, site.ID, due.Milliseconds(), lease.Milliseconds())
		must(t, err)
		n, err = store.InFlight(t.Context(), models.QueueWebhooks)
		must(t, err)
		return n
	}
	for _, lease := range []time.Duration{
		models.ClaimLease, models.QueuedLease, models.RowLease, models.WebhookLease, models.RetryLease,
		-10 * time.Second,
	} {
		if n := inFlight(lease, 0); n != 1 {
			t.Errorf("a task with a lease of %v does not count", lease)
		}
	}
	if n := inFlight(-time.Minute, 0); n != 0 {
		t.Error("a task whose lease ended a minute ago counts")
	}
	if n := inFlight(20*time.Second, 10*time.Second); n != 0 {
		t.Error("a retry that waits in Redis counts")
	}
}

func TestClaimTasksKeepsTheCap(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	done := modelstest.Submit(t, store, modelstest.Batch(site, "b", make([]string, 1000)...))
	first, err := store.ClaimTasks(t.Context(), done.Tasks, models.Dispatch{Queue: models.QueueDebits, InFlight: 4},
		models.Dispatch{InFlight: 16})
	if err != nil || len(first) != 4 {
		t.Fatalf("claimed %d of 5 under a cap of 4, %v", len(first), err)
	}
	second, err := store.ClaimTasks(t.Context(), done.Tasks, models.Dispatch{Queue: models.QueueDebits, InFlight: 4},
		models.Dispatch{InFlight: 16})
	if err != nil || len(second) != 0 {
		t.Errorf("claimed %d more, %v", len(second), err)
	}
}

func TestOneDispatcherAtATime(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	for i := range 10 {
		modelstest.Submit(t, store, modelstest.Batch(site, fmt.Sprint(i), make([]string, 1000)...))
	}
	claimed := make(chan models.Task, 1000)
	race(20, func(int) string {
		for range 10 {
			tasks, err := store.ClaimDue(t.Context(),
				models.Dispatch{Queue: models.QueueDebits, Limit: 7, InFlight: 1000})
			if err != nil {
				t.Error(err)
			}
			for _, task := range tasks {
				claimed <- task
			}
		}
		return ""
	})
	seen := map[models.TaskID]bool{}
	for range len(claimed) {
		if task := <-claimed; seen[task.ID] {
			t.Errorf("%s was claimed twice", task.ID)
		} else {
			seen[task.ID] = true
		}
	}
}

func TestRecurringWorkHasOneLeaderATick(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	start := func(int) string {
		led, err := store.StartRecurring(t.Context(), models.TaskCloseBatches, time.Minute)
		return fmt.Sprint(led, err)
	}
	if diff := cmp.Diff(map[string]int{"true <nil>": 1, "false <nil>": 19}, race(20, start)); diff != "" {
		t.Errorf("the first tick (-want +got):\n%s", diff)
	}
	modelstest.AdvanceClock(t, store, time.Minute)
	if got := start(0); got != "false <nil>" {
		t.Errorf("a second task beside one that is not finished: %s", got)
	}
	tasks, err := store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueSweeps, Limit: 10, InFlight: 10})
	if err != nil || len(tasks) != 1 {
		t.Fatalf("due %v, %v", tasks, err)
	}
	if err := store.FinishTask(t.Context(), tasks[0].ID); err != nil {
		t.Fatal(err)
	}
	modelstest.AdvanceClock(t, store, time.Minute)
	if got := start(0); got != "true <nil>" {
		t.Errorf("the next tick: %s", got)
	}
}

func TestBacklogs(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, 1_800_000_000_000)
	modelstest.Submit(t, store, modelstest.Batch(site, "b", make([]string, 3*models.ChunkRows)...))
	modelstest.AdvanceClock(t, store, 7*time.Second)
	if _, err := store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueDebits, Limit: 2,
		InFlight: 2}); err != nil {
		t.Fatal(err)
	}
	got, err := store.Backlogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []models.Backlog{
		{Queue: models.QueueCheckout}, {Queue: models.QueueDebits, InFlight: 2, Due: 3,
			OldestDue: 7000}, {Queue: models.QueueWebhooks}, {Queue: models.QueueSweeps},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("backlogs (-want +got):\n%s", diff)
	}
}
