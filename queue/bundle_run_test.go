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
	"partnerbilling/queue"
)

// announce writes events for the fleet's Site, and returns the tasks that deliver them.
func (f *fleet) announce(n int) (tasks []models.TaskID) {
	f.Helper()
	ring, err := models.ParseKeyring(models.GenerateMasterKey())
	if err != nil {
		f.Fatal(err)
	}
	if _, _, err := f.store.PutWebhookEndpoint(f.Context(), ring, f.site.OrganisationID, models.SiteID{}, "https://one.example/"); err != nil {
		f.Fatal(err)
	}
	for range n {
		_, task, err := f.store.InsertWebhookEvent(f.Context(), f.site.OrganisationID, models.NewTraceID(), models.TransactionStatusPush{
			SiteID: models.PushSite{ID: f.site.ID}, PaymentIntentID: models.NewPaymentIntentID(), TransactionStatus: "Expired",
		})
		if err != nil {
			f.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// moody is a job whose first run of some tasks fails.
type moody struct {
	*fleet
	first map[models.TaskID]func() error

	mu   sync.Mutex
	runs map[models.TaskID]int
}

func (m *moody) Run(ctx context.Context, task models.Task) error {
	m.mu.Lock()
	m.runs[task.ID]++
	n := m.runs[task.ID]
	m.mu.Unlock()
	if fail := m.first[task.ID]; fail != nil && n == 1 {
		return fail()
	}
	return m.fleet.Run(ctx, task)
}

// What becomes of one member of a bundle is nothing to the others.
func TestMembersOfABundleFailAlone(t *testing.T) {
	f := newFleet(t)
	tasks := f.announce(64) // four of each bundle
	m := &moody{fleet: f, runs: map[models.TaskID]int{}, first: map[models.TaskID]func() error{
		tasks[0]:  func() error { panic("a fault of the job") },
		tasks[20]: func() error { return errors.New("a fault") },
		tasks[40]: func() error { return queue.RetryAfter(10*time.Millisecond, errors.New("as it may be")) },
		tasks[60]: func() error { return asynq.SkipRetry },
	}}
	server := queue.NewServer(f.redis, queue.Jobs{models.TaskDeliverWebhook: m}, queue.ServerConfig{
		Queues: []models.Queue{models.QueueWebhooks}, WebhookConcurrency: 2, Log: slog.New(slog.DiscardHandler),
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	f.background(f.dispatcher().Run)
	f.await(append(append([]models.TaskID{}, tasks[:60]...), tasks[61:]...))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, task := range tasks {
		switch fails := m.first[task] != nil; {
		case !fails && m.runs[task] != 1:
			t.Errorf("task %d has been run %d times", i, m.runs[task])
		case fails && i != 60 && m.runs[task] < 2: // a lease may have brought it once more
			t.Errorf("task %d failed and has been run %d times", i, m.runs[task])
		}
	}
}
