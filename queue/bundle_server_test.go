package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"partnerbilling/models"
	"partnerbilling/models/seal"
	"partnerbilling/queue"
)

// insertEvents writes n webhook events for the fleet's Site, and returns the tasks that deliver
// them.
func (f *fleet) insertEvents(n int) (tasks []models.TaskID) {
	f.Helper()
	ring, err := seal.ParseKeyring(seal.GenerateMasterKey())
	if err != nil {
		f.Fatal(err)
	}
	_, _, err = f.store.PutWebhookEndpoint(f.Context(), ring, f.site.OrganisationID, models.SiteID{},
		"https://one.example/")
	if err != nil {
		f.Fatal(err)
	}
	for range n {
		_, task, err := f.store.InsertWebhookEvent(f.Context(), f.site.OrganisationID, models.NewTraceID(),
			models.TransactionStatusPush{
				SiteID: models.PushSite{ID: f.site.ID}, PaymentIntentID: models.NewPaymentIntentID(),
				TransactionStatus: "Expired",
			})
		if err != nil {
			f.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// flakyJob is a job whose first run of some tasks fails.
type flakyJob struct {
	*fleet
	failures map[models.TaskID]func() error

	mu   sync.Mutex
	runs map[models.TaskID]int
}

func (j *flakyJob) Run(ctx context.Context, task models.Task) error {
	j.mu.Lock()
	j.runs[task.ID]++
	n := j.runs[task.ID]
	j.mu.Unlock()
	if fail := j.failures[task.ID]; fail != nil && n == 1 {
		return fail()
	}
	return j.fleet.Run(ctx, task)
}

// jobFunc is a job.
type jobFunc func(ctx context.Context, task models.Task) error

func (f jobFunc) Run(ctx context.Context, task models.Task) error { return f(ctx, task) }

// A member of a bundle that fails does not affect the others.
func TestMembersOfABundleFailAlone(t *testing.T) {
	f := newFleet(t)
	tasks := f.insertEvents(64)
	job := &flakyJob{fleet: f, runs: map[models.TaskID]int{}, failures: map[models.TaskID]func() error{
		tasks[0]:  func() error { panic("a bug in the job") },
		tasks[20]: func() error { return errors.New("a failure") },
		tasks[40]: func() error { return queue.RetryAfter(10*time.Millisecond, errors.New("an expected failure")) },
		tasks[60]: func() error { return asynq.SkipRetry },
	}}
	server := queue.NewServer(f.redis, queue.Jobs{models.TaskDeliverWebhook: job}, queue.ServerConfig{
		Queues: []models.Queue{models.QueueWebhooks}, WebhookConcurrency: 2, Log: slog.New(slog.DiscardHandler),
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	f.background(f.dispatcher().Run)
	f.await(append(append([]models.TaskID{}, tasks[:60]...), tasks[61:]...))
	job.mu.Lock()
	defer job.mu.Unlock()
	for i, task := range tasks {
		switch fails := job.failures[task] != nil; {
		case !fails && job.runs[task] != 1:
			t.Errorf("task %d ran %d times, want 1", i, job.runs[task])
		case fails && i != 60 && job.runs[task] < 2: // an expired lease may have added a run
			t.Errorf("task %d failed and ran %d times, want at least 2", i, job.runs[task])
		}
	}
}

// Claimed tasks run without Redis, in the slots of the server. One that fails comes back through
// Redis.
func TestServerRunsClaimedTasks(t *testing.T) {
	f := newFleet(t)
	tasks := f.insertEvents(10)
	claimed, err := f.store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueWebhooks, Limit: 10, InFlight: 10})
	if err != nil || len(claimed) != len(tasks) {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	job := &flakyJob{fleet: f, runs: map[models.TaskID]int{}, failures: map[models.TaskID]func() error{
		tasks[3]: func() error { return queue.RetryAfter(10*time.Millisecond, errors.New("an expected failure")) },
	}}
	server := queue.NewServer(f.redis, queue.Jobs{models.TaskDeliverWebhook: job}, queue.ServerConfig{
		Queues: []models.Queue{models.QueueWebhooks}, WebhookConcurrency: 2, Log: slog.New(slog.DiscardHandler),
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	server.RunClaimed(claimed)
	f.await(tasks)
	job.mu.Lock()
	defer job.mu.Unlock()
	for i, task := range tasks {
		want := 1
		if job.failures[task] != nil {
			want = 2
		}
		if job.runs[task] != want {
			t.Errorf("task %d ran %d times, want %d", i, job.runs[task], want)
		}
	}
}

// A shutdown interrupts claimed tasks that wait for a slot.
func TestShutdownInterruptsClaimedTasks(t *testing.T) {
	f := newFleet(t)
	f.insertEvents(2)
	claimed, err := f.store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueWebhooks, Limit: 2, InFlight: 2})
	if err != nil || len(claimed) != 2 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	began := make(chan struct{}, len(claimed))
	job := jobFunc(func(ctx context.Context, _ models.Task) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	server := queue.NewServer(f.redis, queue.Jobs{models.TaskDeliverWebhook: job}, queue.ServerConfig{
		Queues: []models.Queue{models.QueueWebhooks}, WebhookConcurrency: 1, Log: slog.New(slog.DiscardHandler),
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	server.RunClaimed(claimed)
	<-began
	server.Shutdown()
	if n := len(began); n != 0 {
		t.Errorf("%d tasks began during the shutdown", n)
	}
}
