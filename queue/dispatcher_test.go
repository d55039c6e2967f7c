package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// fleet is a database, a Redis, and the workers and dispatchers that a test runs on them.
type fleet struct {
	*testing.T
	store  *models.Store
	server *queuetest.Server
	redis  redis.UniversalClient
	site   models.Site
	ran    chan models.TaskID // finished tasks
}

func newFleet(t *testing.T) *fleet {
	t.Parallel()
	store, server := modelstest.Open(t), queuetest.Start(t)
	client, err := queue.ConnectURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &fleet{
		T: t, store: store, server: server, redis: client, site: modelstest.Site(t, store),
		ran: make(chan models.TaskID, 10_000),
	}
}

// Run implements queue.Job. It finishes its task.
func (f *fleet) Run(ctx context.Context, task models.Task) error {
	if err := f.store.FinishTask(ctx, task.ID); err != nil {
		return err
	}
	if len(models.TraceIDFrom(ctx)) != 32 {
		f.Errorf("the task runs under the trace id %q", models.TraceIDFrom(ctx))
	}
	f.ran <- task.ID
	return nil
}

func (f *fleet) dispatcher() *queue.Dispatcher {
	return queue.NewDispatcher(f.store, f.redis, queue.DispatcherConfig{Log: slog.New(slog.DiscardHandler)})
}

// background runs do until the test ends.
func (f *fleet) background(do func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Error(err)
		}
	})
}

// serve runs tasks until the test ends.
func (f *fleet) serve(job queue.Job) {
	server := queue.NewServer(f.redis, queue.Jobs{models.TaskDebitRows: job}, queue.ServerConfig{
		ShutdownTimeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err := server.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { server.Shutdown() })
}

func (f *fleet) submit(n int) []models.TaskID {
	f.Helper()
	var tasks []models.TaskID
	for i := range n {
		reference := fmt.Sprintf("%d-%d", time.Now().UnixNano(), i)
		tasks = append(tasks, modelstest.Submit(f, f.store, modelstest.Batch(f.site, reference, "x")).Tasks...)
	}
	return tasks
}

// await waits until all the tasks are finished.
func (f *fleet) await(tasks []models.TaskID) {
	f.Helper()
	missing := map[models.TaskID]bool{}
	for _, t := range tasks {
		missing[t] = true
	}
	deadline := time.After(3 * time.Minute)
	for len(missing) > 0 {
		select {
		case t := <-f.ran:
			delete(missing, t)
		case <-deadline:
			f.Fatalf("%d of %d tasks are not finished", len(missing), len(tasks))
		}
	}
}

func TestCommittedTasksAreRun(t *testing.T) {
	f := newFleet(t)
	f.serve(f)
	f.background(f.dispatcher().Run)
	f.await(f.submit(40)) // without a Notify, as if the API had died after its commit
}

func TestNotifiedTasksAreRunWithoutALoop(t *testing.T) {
	f := newFleet(t)
	f.serve(f)
	d := f.dispatcher()
	f.background(d.RunInline)
	tasks := f.submit(1)
	again := time.NewTicker(200 * time.Millisecond) // on a busy machine an inline dispatch may time out
	defer again.Stop()
	deadline := time.After(3 * time.Minute)
	for {
		d.Notify(tasks)
		select {
		case <-f.ran:
			return
		case <-again.C:
		case <-deadline:
			t.Fatal("the notified task is not finished")
		}
	}
}

// A run ends before Asynq gives up on it, with time to record its results.
func TestRunEndsBeforeItsTaskTimesOut(t *testing.T) {
	f := newFleet(t)
	inspector := asynq.NewInspectorFromRedisClient(f.redis)
	type times struct{ run, task time.Duration }
	seen := make(chan times, 1)
	f.serve(jobFunc(func(ctx context.Context, task models.Task) error {
		end, _ := ctx.Deadline()
		running, err := inspector.ListActiveTasks(string(models.QueueDebits))
		if err != nil || len(running) != 1 {
			t.Errorf("%d running tasks, %v", len(running), err)
		} else {
			seen <- times{time.Until(end), running[0].Timeout}
		}
		return f.Run(ctx, task)
	}))
	f.background(f.dispatcher().Run)
	f.await(f.submit(1))
	select {
	case got := <-seen:
		if got.run < time.Minute || got.task-got.run < 30*time.Second {
			t.Errorf("a run has %s, its task %s", got.run, got.task)
		}
	default:
		t.Error("the run was not seen")
	}
}

func TestNotifyNeverBlocks(t *testing.T) {
	f := newFleet(t)
	d := f.dispatcher() // not running
	for range 5000 {
		d.Notify([]models.TaskID{{}})
	}
}

func TestDispatcherDiesBetweenClaimAndEnqueue(t *testing.T) {
	f := newFleet(t)
	tasks := f.submit(3)
	claimed, err := f.store.ClaimDue(t.Context(), models.Dispatch{Queue: models.QueueDebits, Limit: 10, InFlight: 10})
	if err != nil || len(claimed) != 3 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	f.serve(f)
	f.background(f.dispatcher().Run)
	f.await(tasks)
}

func TestFlushedRedis(t *testing.T) {
	f := newFleet(t)
	d := f.dispatcher()
	ctx, stop := context.WithCancel(t.Context())
	dispatched := make(chan error, 1)
	go func() { dispatched <- d.Run(ctx) }()
	tasks := f.submit(10) // without a worker, they wait in Redis
	inspector := asynq.NewInspectorFromRedisClient(f.redis)
	for deadline := time.Now().Add(3 * time.Minute); ; {
		info, err := inspector.GetQueueInfo(string(models.QueueDebits))
		if err == nil && info.Pending >= len(tasks) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the queue before the flush: %+v, %v", info, err)
		}
	}
	if err := f.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.serve(f)
	f.await(tasks)
	// The tasks may have been enqueued after the flush. The dispatcher detects the flush
	// nevertheless.
	for deadline := time.Now().Add(10 * time.Second); ; {
		names, err := inspector.Queues()
		if err == nil && len(names) == len(models.Queues) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the flush the dashboard shows the queues %v, %v", names, err)
		}
	}
	stop()
	if err := <-dispatched; err != nil {
		t.Error(err)
	}
}

func TestTasksSurviveAnOutageOfRedis(t *testing.T) {
	f := newFleet(t)
	f.serve(f)
	d := f.dispatcher()
	f.background(d.Run)
	f.await(f.submit(1))
	f.server.Kill()
	tasks := f.submit(5)
	d.Notify(tasks)
	f.server.Start()
	f.await(tasks)
}

func TestUnknownTasksAreNotRetried(t *testing.T) {
	f := newFleet(t)
	for name, task := range map[string]*asynq.Task{
		"kind":    asynq.NewTask("unknownKind", []byte(models.TaskID{}.String())),
		"payload": asynq.NewTask(string(models.TaskDebitRows), []byte("../etc/passwd")),
	} {
		server := queue.NewServer(f.redis, queue.Jobs{models.TaskDebitRows: f}, queue.ServerConfig{})
		err := server.ProcessTask(t.Context(), task)
		if !errors.Is(err, asynq.SkipRetry) {
			t.Errorf("unknown %s: %v", name, err)
		}
	}
}

func TestCheckRedis(t *testing.T) {
	f := newFleet(t)
	if err := queue.CheckRedis(t.Context(), f.redis); err != nil {
		t.Error(err)
	}
	if err := f.redis.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if err := queue.CheckRedis(t.Context(), f.redis); err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("a Redis that evicts tasks: %v", err)
	}
}

func TestConnectURLHidesThePassword(t *testing.T) {
	if _, err := queue.ConnectURL("redis://:secret@host:port"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}

func TestDashboard(t *testing.T) {
	f := newFleet(t)
	address, err := queue.ParseRedis(f.server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	dashboard := queue.NewDashboard(address, func(w http.ResponseWriter, r *http.Request) bool {
		if username, password, _ := r.BasicAuth(); username == "operator" && password == "secret" {
			return true
		}
		w.WriteHeader(http.StatusUnauthorized)
		return false
	})
	t.Cleanup(func() { _ = dashboard.Close() })
	for name, tt := range map[string]struct {
		method, path, user, password string
		status                       int
	}{
		"no login":       {"GET", "/ops/queues", "", "", http.StatusUnauthorized},
		"wrong password": {"GET", "/ops/queues", "operator", "guess", http.StatusUnauthorized},
		"page":           {"GET", "/ops/queues", "operator", "secret", http.StatusOK},
		"subpage":        {"GET", "/ops/queues/queues/debits", "operator", "secret", http.StatusOK},
		"data":           {"GET", "/ops/queues/api/queues", "operator", "secret", http.StatusOK},
		"delete": {"DELETE", "/ops/queues/api/queues/debits", "operator", "secret",
			http.StatusMethodNotAllowed},
		"pause": {"POST", "/ops/queues/api/queues/debits:pause", "operator", "secret",
			http.StatusMethodNotAllowed},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
		if tt.user != "" {
			r.SetBasicAuth(tt.user, tt.password)
		}
		w := httptest.NewRecorder()
		dashboard.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%s: %d, want %d", name, w.Code, tt.status)
		}
		if w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: no content security policy", name)
		}
		if body := w.Body.String(); strings.Contains(body, "fonts.googleapis.com") ||
			strings.Contains(body, "manifest") ||
			strings.Contains(name, "page") && !strings.Contains(body, "FLAG_ROOT_PATH") {
			t.Errorf("%s loads from outside, or is no page:\n%s", name, body)
		}
	}
}
