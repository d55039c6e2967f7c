package queue

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
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
	claimed := func(reference string) int {
		t.Helper()
		done := modelstest.Submit(t, store, modelstest.Batch(site, reference, "ada"))
		tasks, err := d.claim(t.Context(), done.Tasks)
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	if n := claimed("not counted yet"); n != 1 {
		t.Errorf("%d tasks are claimed before the first count, want 1", n)
	}
	if err := d.fleet.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := claimed("no worker"); n != 0 {
		t.Errorf("%d tasks are claimed without a worker", n)
	}
	d.fleet.slotCounts[models.QueueDebits].Store(16)
	if n := claimed("a worker"); n != 1 {
		t.Errorf("%d tasks are claimed with a worker, want 1", n)
	}
}

// A dispatcher that ends releases the tasks that it has claimed and not sent.
func TestUnsentTasksAreReleased(t *testing.T) {
	t.Parallel()
	store, client := modelstest.Open(t), queuetest.Client(t, queuetest.Start(t).URL)
	d := NewDispatcher(store, client, DispatcherConfig{Log: slog.New(slog.DiscardHandler)})
	site := modelstest.Site(t, store)
	submitted := modelstest.Submit(t, store, modelstest.Batch(site, "b", make([]string, 5*models.ChunkRows)...))
	for _, task := range submitted.Tasks {
		claimed, err := d.claim(t.Context(), []models.TaskID{task})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
		d.claimed <- claimed
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := d.RunInline(ctx); err != nil {
		t.Fatal(err)
	}
	due, err := store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueDebits, Limit: 10, InFlight: 10})
	if err != nil || len(due) != len(submitted.Tasks) {
		t.Errorf("%d of %d claimed tasks are due again, %v", len(due), len(submitted.Tasks), err)
	}
}

// logLines receives the lines of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Each loop of a dispatcher logs its own failures.
func TestLoopsNameTheirFailures(t *testing.T) {
	t.Parallel()
	const refusing = "127.0.0.1:1" // refuses connections
	store, err := models.Open(postgres.Config{DSN: "postgres://x@" + refusing + "/x?sslmode=disable"})
	if err != nil {
		t.Fatal(err)
	}
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	defer store.Close()
	client := redis.NewClient(&redis.Options{Addr: refusing, MaxRetries: -1})
	defer client.Close()
	lines := make(logLines, 1000)
	d := NewDispatcher(store, client, DispatcherConfig{Log: slog.New(slog.NewTextHandler(lines, nil))})
	d.enqueued.add([]models.Task{{ID: models.TaskID{1}, Kind: models.TaskDebitRows}})
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	missing := map[string]bool{
		"dispatch failed": true, "housekeeping failed": true, "cannot count the fleet": true,
		"cannot extend the leases of enqueued tasks": true,
	}
	for len(missing) > 0 {
		select {
		case line := <-lines:
			maps.DeleteFunc(missing, func(failure string, _ bool) bool { return strings.Contains(line, failure) })
		case <-ctx.Done():
			t.Fatalf("the log lacks %v", missing)
		}
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A dispatcher ends soon and without an error while Postgres does not answer, however many tasks
// are unsent.
func TestDispatcherEndsWhilePostgresHangs(t *testing.T) {
	dsn := "postgres://x@" + localtest.SilentAddress(t) + "/x?sslmode=disable"
	store, err := models.Open(postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	store.SetKeyring(modelstest.Keyring(t, modelstest.MasterKey))
	defer store.Close()
	client := queuetest.Client(t, queuetest.Start(t).URL)
	d := NewDispatcher(store, client, DispatcherConfig{Log: slog.New(slog.DiscardHandler)})
	for range 20 {
		d.claimed <- []models.Task{{ID: models.TaskID{1}, Kind: models.TaskDebitRows, Epoch: 1}}
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	began := time.Now()
	if err := d.RunInline(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second { // the timeout of one statement, not of twenty
		t.Errorf("the dispatcher ended after %s", took)
	}
}
