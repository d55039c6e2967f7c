package queue

import (
	"log/slog"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue/queuetest"
)

// Inline claims of new webhooks leave capacity for the waiting ones, which the loop claims.
func TestNewWebhooksDoNotStarveWaitingOnes(t *testing.T) {
	t.Parallel()
	store, client := modelstest.Open(t), queuetest.Client(t, queuetest.Start(t).URL)
	d := NewDispatcher(store, client, DispatcherConfig{Log: slog.New(slog.DiscardHandler)})
	site := modelstest.Site(t, store)
	bounds := d.bounds(models.QueueWebhooks)
	// insert writes n webhooks of n organisations, in flight or due.
	insert := func(n int, inFlight bool) (tasks []models.TaskID) {
		t.Helper()
		err := store.DB().NewRaw(`
INSERT INTO outbox (id, kind, queue, organisation_id, site_id, subject_id, available_at, dispatched_at,
	redispatch_after)
SELECT gen_random_uuid(), 'deliverWebhook', 'webhooks', gen_random_uuid(), ?, gen_random_uuid(), 1,
    CASE WHEN ? THEN clock_timestamp() END, CASE WHEN ? THEN clock_timestamp() + interval '20 seconds' END
FROM generate_series(1, ?) RETURNING id`, site.ID, inFlight, inFlight, n).Scan(t.Context(), &tasks)
		if err != nil {
			t.Fatal(err)
		}
		return tasks
	}
	countInFlight := func() (n int) {
		t.Helper()
		err := store.DB().NewRaw(`SELECT count(*) FROM outbox WHERE dispatched_at IS NOT NULL`).Scan(t.Context(), &n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	inlineTotal := bounds.Total - bounds.MinRoom
	insert(inlineTotal-10, true)
	waiting := insert(100, false)
	if _, err := d.claim(t.Context(), waiting[:50]); err != nil {
		t.Fatal(err)
	}
	if n := countInFlight(); n > inlineTotal {
		t.Errorf("%d webhooks are in flight after an inline claim, want at most %d of %d", n, inlineTotal, bounds.Total)
	}
	if n, err := d.dispatchDue(t.Context(), bounds); err != nil || n < 90 {
		t.Errorf("the loop dispatched %d of 90 waiting webhooks, %v", n, err)
	}
}

// While no worker serves a queue, nothing makes its lost tasks due again. Claims right after
// commits then leave them in Postgres.
func TestNothingIsClaimedInlineWithoutWorkers(t *testing.T) {
	t.Parallel()
	store, client := modelstest.Open(t), queuetest.Client(t, queuetest.Start(t).URL)
	d := NewDispatcher(store, client, DispatcherConfig{Log: slog.New(slog.DiscardHandler)})
	site := modelstest.Site(t, store)
	claimed := func(reference string) (inSubmission, afterCommit int) {
		t.Helper()
		batch := modelstest.Batch(site, reference, "ada")
		batch.Claim = d.ClaimBounds()
		done := modelstest.Submit(t, store, batch)
		tasks, err := d.claim(t.Context(), done.Tasks)
		if err != nil {
			t.Fatal(err)
		}
		return len(done.Claimed), len(tasks)
	}
	if n, _ := claimed("not counted yet"); n != 1 {
		t.Errorf("%d tasks are claimed before the first count, want 1", n)
	}
	if err := d.fleet.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	if inSubmission, afterCommit := claimed("no worker"); inSubmission != 0 || afterCommit != 0 {
		t.Errorf("%d and %d tasks are claimed without a worker", inSubmission, afterCommit)
	}
	d.fleet.slotCounts[models.QueueDebits].Store(16)
	if n, _ := claimed("a worker"); n != 1 {
		t.Errorf("%d tasks are claimed with a worker, want 1", n)
	}
}
