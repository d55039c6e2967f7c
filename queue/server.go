package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
)

// ServerConfig tunes a Server.
type ServerConfig struct {
	// Concurrency is how many tasks run at once, webhooks and payments aside; default 16.
	Concurrency int
	// CheckoutConcurrency is how many payments are under way at once; default 64. A batch of slow accounts must not let
	// a customer at a till wait.
	CheckoutConcurrency int
	// WebhookConcurrency is how many webhooks are under way at once, beside the others; default 1024. Each waits for a
	// stranger's server, up to 10 s, so there are many, and they have no part in what the other tasks may use.
	WebhookConcurrency int
	// Queues are the queues to serve; default all.
	Queues []models.Queue
	// ShutdownTimeout is how long running tasks may go on after a shutdown began; default 40 s. It is above what any run
	// needs once its context has ended.
	ShutdownTimeout time.Duration
	Log             *slog.Logger
}

// lookForTasks is how often the server of the queues that share slots looks for tasks while it finds none. The others rest
// (see rester).
const lookForTasks = 100 * time.Millisecond

// retriesEvery is how often tasks are looked for whose time has come, and webhooksRetriesEvery of webhooks: where endpoints hang there are
// many, which all come at once if they are looked for rarely.
const (
	retriesEvery         = time.Second
	webhooksRetriesEvery = 250 * time.Millisecond
)

// Server fetches tasks and runs their jobs.
type Server struct {
	servers []*asynq.Server // one for each queue with slots of its own, one for the others
	jobs    Jobs
	client  *redis.Client
	tasks   *asynq.Client // for members of bundles that come again
	slots   chan struct{} // one for each webhook under way
	log     *slog.Logger
	queues  []models.Queue
	rester  *rester
	base    context.Context //nolint:containedctx // of every run, and of the ear for words
	cancel  context.CancelFunc
	running sync.WaitGroup // Asynq lets go of a run whose context has ended before it has returned
	grace   time.Duration
}

// NewServer makes a server; it does nothing before Start.
func NewServer(client *redis.Client, jobs Jobs, cfg ServerConfig) *Server {
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 16
	}
	if cfg.WebhookConcurrency <= 0 {
		cfg.WebhookConcurrency = 1024
	}
	if cfg.ShutdownTimeout <= 0 {
		cfg.ShutdownTimeout = 40 * time.Second
	}
	if len(cfg.Queues) == 0 {
		cfg.Queues = Names()
	}
	if cfg.CheckoutConcurrency <= 0 {
		cfg.CheckoutConcurrency = 64
	}
	own := map[models.Queue]int{models.QueueCheckout: cfg.CheckoutConcurrency, models.QueueWebhooks: cfg.WebhookConcurrency}
	base, cancel := context.WithCancel(context.Background())
	s := &Server{
		jobs: jobs, client: client, tasks: asynq.NewClientFromRedisClient(client), slots: make(chan struct{}, cfg.WebhookConcurrency),
		log: cfg.Log, queues: cfg.Queues, rester: newRester(cfg.Queues), base: base, cancel: cancel, grace: cfg.ShutdownTimeout,
	}
	looking := client.WithTimeout(client.Options().ReadTimeout) // the same connections, and a hook of its own
	looking.AddHook(s.rester)
	shared := make(map[string]int, len(cfg.Queues))
	for _, q := range cfg.Queues {
		if slots := own[q]; slots > 0 {
			retries := retriesEvery
			if q == models.QueueWebhooks {
				retries = webhooksRetriesEvery
			}
			s.servers = append(s.servers, s.newAsynq(looking, map[string]int{string(q): 1}, slots, afterRest, retries, cfg))
		} else {
			shared[string(q)] = weights[q]
		}
	}
	if len(shared) > 0 {
		s.servers = append(s.servers, s.newAsynq(looking, shared, cfg.Concurrency, lookForTasks, retriesEvery, cfg))
	}
	return s
}

func (s *Server) newAsynq(
	client *redis.Client, queues map[string]int, concurrency int, look, retries time.Duration, cfg ServerConfig,
) *asynq.Server {
	return asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency:              concurrency,
		Queues:                   queues,
		BaseContext:              func() context.Context { return s.base },
		TaskCheckInterval:        look,
		DelayedTaskCheckInterval: retries,
		ShutdownTimeout:          cfg.ShutdownTimeout,
		RetryDelayFunc:           retryAfter,
		IsFailure:                isFailure,
		Logger:                   asynqLog{cfg.Log},
		ErrorHandler:             asynq.ErrorHandlerFunc(s.logFailure),
	})
}

// logFailure says that a run has failed.
func (s *Server) logFailure(ctx context.Context, t *asynq.Task, err error) {
	level := slog.LevelError
	if planned := (*retry)(nil); errors.As(err, &planned) || errors.Is(err, context.Canceled) {
		level = slog.LevelInfo // as it may be: a retry that was promised, a shutdown
	}
	s.log.Log(withTrace(ctx, t), level, "task failed", "kind", t.Type(), "task", string(t.Payload()), "error", err)
}

// Start begins to fetch tasks, and returns.
func (s *Server) Start() error {
	for i, server := range s.servers {
		if err := server.Start(s); err != nil {
			for _, started := range s.servers[:i] {
				started.Shutdown()
			}
			return fmt.Errorf("queue: start: %w", err)
		}
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.rester.listen(s.base, s.client, s.queues)
	}()
	return nil
}

// ProcessTask implements asynq.Handler.
func (s *Server) ProcessTask(ctx context.Context, t *asynq.Task) error {
	s.running.Add(1)
	defer s.running.Done()
	members, err := unpack(t)
	switch {
	case err != nil:
		return err
	case len(members) > 0:
		return s.runBundle(ctx, members)
	case bundled(models.TaskKind(t.Type())):
		return s.inSlot(ctx, func() error { return s.jobs.ProcessTask(ctx, t) })
	default:
		return s.jobs.ProcessTask(ctx, t)
	}
}

// Shutdown fetches no more, ends the running tasks' contexts, and waits until they have written down where they are.
func (s *Server) Shutdown() {
	s.rester.end()
	for _, server := range s.servers {
		server.Stop()
	}
	s.cancel()
	for _, server := range s.servers {
		server.Shutdown()
	}
	done := make(chan struct{})
	go func() { defer close(done); s.running.Wait() }()
	select {
	case <-done:
	case <-time.After(s.grace):
	}
}

// asynqLog writes Asynq's own log lines to slog.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Error("asynq", "message", fmt.Sprint(args...)) }

// Fatal is called for what Asynq cannot go on from; it does not end the process here, the readiness checks tell.
func (l asynqLog) Fatal(args ...any) { l.log.Error("asynq: fatal", "message", fmt.Sprint(args...)) }
