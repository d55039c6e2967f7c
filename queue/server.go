package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/models/tracing"
)

// ServerConfig tunes a Server.
type ServerConfig struct {
	// Concurrency is the number of slots for debits and sweeps; default 32.
	Concurrency int
	// CheckoutConcurrency is the number of slots for checkout payments; default 64. They have slots
	// of their own so that a slow batch does not delay a customer at a till.
	CheckoutConcurrency int
	// WebhookConcurrency is the number of slots for webhooks; default 1024. There are many, since
	// each webhook waits up to 10 s for the partner's server.
	WebhookConcurrency int
	// Queues lists the queues to serve; default all.
	Queues []models.Queue
	// ShutdownTimeout bounds the wait of Shutdown for running tasks; default 40 s. It must exceed
	// the time that a run needs after the end of its context.
	ShutdownTimeout time.Duration
	Tracer          *tracing.Tracer // nil records nothing
	Log             *slog.Logger
}

const (
	// sweepsPoll is the pause between two polls of an Asynq server that serves only sweeps. Other
	// Asynq servers have an idle gate.
	sweepsPoll = 100 * time.Millisecond
	// forwardInterval is the time between two checks of Asynq for retries that are due. Asynq then
	// moves them to the pending tasks.
	forwardInterval = time.Second
	// webhookForwardInterval is forwardInterval for webhooks. It is shorter, because hanging
	// endpoints cause many retries, which would otherwise become pending in bursts.
	webhookForwardInterval = 250 * time.Millisecond
	// pollGrace is how long Shutdown waits for the polls that are under way before it cancels the
	// runs. While Redis hangs, a poll ends only after the time-outs of its command. A run that such
	// a poll begins later finds its context cancelled, and is retried.
	pollGrace = 500 * time.Millisecond
)

// Server fetches tasks from Redis and runs their jobs.
type Server struct {
	servers []*asynq.Server // one for each queue with slots of its own, one for the other queues
	jobs    Jobs
	client  redis.UniversalClient
	tracer  *tracing.Tracer
	tasks   *asynq.Client // for retries of bundle members
	slots   chan struct{} // full while every webhook slot is in use
	log     *slog.Logger
	queues  []models.Queue // those that the server serves
	gate    *idleGate

	gated      redis.UniversalClient // the client of the Asynq servers, whose commands pass the gate
	closeGated func() error

	runCtx          context.Context // parent of every run's context
	cancel          context.CancelFunc
	running         sync.WaitGroup // Asynq does not wait for runs whose context has ended
	shutdownTimeout time.Duration
}

// NewServer returns a server, which does nothing before Start. The client must be a *redis.Client
// or a *redis.ClusterClient; with any other, Start fails.
func NewServer(client redis.UniversalClient, jobs Jobs, cfg ServerConfig) *Server {
	cfg.Concurrency = cmp.Or(max(cfg.Concurrency, 0), defaultSlots[models.QueueDebits])
	cfg.CheckoutConcurrency = cmp.Or(max(cfg.CheckoutConcurrency, 0), defaultSlots[models.QueueCheckout])
	cfg.WebhookConcurrency = cmp.Or(max(cfg.WebhookConcurrency, 0), defaultSlots[models.QueueWebhooks])
	cfg.ShutdownTimeout = cmp.Or(max(cfg.ShutdownTimeout, 0), 40*time.Second)
	if len(cfg.Queues) == 0 {
		cfg.Queues = models.Queues
	}
	ownSlots := map[models.Queue]int{
		models.QueueCheckout: cfg.CheckoutConcurrency,
		models.QueueWebhooks: cfg.WebhookConcurrency,
	}
	runCtx, cancel := context.WithCancel(context.Background())
	s := &Server{
		jobs: jobs, tracer: cfg.Tracer, client: client, tasks: asynq.NewClientFromRedisClient(client),
		slots: make(chan struct{}, cfg.WebhookConcurrency),
		log:   cfg.Log, queues: cfg.Queues, gate: newIdleGate(cfg.Queues),
		closeGated: func() error { return nil },
		runCtx:     runCtx, cancel: cancel, shutdownTimeout: cfg.ShutdownTimeout,
	}
	s.addGate()
	shared := make(map[string]int, len(cfg.Queues))
	for _, q := range cfg.Queues {
		if slots := ownSlots[q]; slots > 0 {
			forward := forwardInterval
			if q == models.QueueWebhooks {
				forward = webhookForwardInterval
			}
			own := map[string]int{string(q): 1}
			s.servers = append(s.servers, s.newAsynq(own, slots, gatedPoll, forward, cfg))
		} else {
			shared[string(q)] = weights[q]
		}
	}
	poll := sweepsPoll
	if shared[string(models.QueueDebits)] > 0 {
		poll = gatedPoll
	}
	if len(shared) > 0 {
		s.servers = append(s.servers, s.newAsynq(shared, cfg.Concurrency, poll, forwardInterval, cfg))
	}
	return s
}

// addGate creates the client of the Asynq servers, whose commands pass the idle gate. That client
// shares the connections of the server's client. In a Cluster it has connections of its own.
func (s *Server) addGate() {
	switch client := s.client.(type) {
	case *redis.Client:
		s.gated = client.WithTimeout(client.Options().ReadTimeout)
	case *redis.ClusterClient:
		options := *client.Options()
		own := redis.NewClusterClient(&options)
		s.gated, s.closeGated = own, own.Close
	default:
		return // Start fails
	}
	s.gated.AddHook(s.gate)
}

// newAsynq returns an Asynq server for the queues, by priority, with concurrency slots. poll is the
// pause after a poll that found nothing, and forward the interval between checks for due retries.
func (s *Server) newAsynq(
	queues map[string]int, concurrency int, poll, forward time.Duration, cfg ServerConfig,
) *asynq.Server {
	return asynq.NewServerFromRedisClient(s.gated, asynq.Config{
		Concurrency:              concurrency,
		Queues:                   queues,
		BaseContext:              func() context.Context { return s.runCtx },
		TaskCheckInterval:        poll,
		DelayedTaskCheckInterval: forward,
		ShutdownTimeout:          cfg.ShutdownTimeout,
		RetryDelayFunc:           retryDelay,
		IsFailure:                isFailure,
		Logger:                   asynqLog{cfg.Log},
		ErrorHandler:             asynq.ErrorHandlerFunc(s.logFailure),
	})
}

// logFailure logs a failed run.
func (s *Server) logFailure(ctx context.Context, t *asynq.Task, err error) {
	level := slog.LevelError
	if planned := (*plannedRetry)(nil); errors.As(err, &planned) || errors.Is(err, context.Canceled) {
		level = slog.LevelInfo // expected: a planned retry, or a shutdown
	}
	s.log.Log(withIDs(ctx, t), level, "task failed", logs.Outage(err), "error", err)
}

// Start starts to fetch tasks, and returns at once.
func (s *Server) Start() error {
	if s.gated == nil {
		return fmt.Errorf("queue: start: a %T cannot serve the queues", s.client)
	}
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
		s.gate.listen(s.runCtx, s.client, s.queues)
	}()
	return nil
}

// ProcessTask implements asynq.Handler. It runs the jobs of a plain task or of a bundle.
func (s *Server) ProcessTask(ctx context.Context, t *asynq.Task) error {
	s.running.Add(1)
	defer s.running.Done()
	members, err := readBundle(t)
	switch {
	case err != nil:
		return err
	case len(members) > 0:
		return s.runBundle(ctx, members)
	case isBundled(models.TaskKind(t.Type())):
		return s.inSlot(ctx, func() error { return s.runPlain(ctx, t) })
	default:
		return s.runPlain(ctx, t)
	}
}

// runPlain runs the job of a plain task.
func (s *Server) runPlain(ctx context.Context, t *asynq.Task) error {
	task, err := readTask(t)
	if err != nil {
		return err
	}
	id, _ := asynq.GetTaskID(ctx)
	task.Epoch = epochOf(id)
	return s.runJob(ctx, task)
}

// runJob runs the job of a task, in a span, for runTimeout.
func (s *Server) runJob(ctx context.Context, task models.Task) (err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	ctx, span := s.tracer.StartTask(withTask(ctx, task), task)
	defer func() { span.End(err) }()
	job, ok := s.jobs[task.Kind]
	if !ok {
		return fmt.Errorf("%w: kind %q", errUnknownTask, task.Kind)
	}
	return job.Run(ctx, task)
}

// Shutdown stops fetching and cancels the contexts of the running tasks. It then waits until their
// runs have returned, for ShutdownTimeout at most, and reports whether they have. If not, the
// caller must leave the server's Redis client open: Asynq panics once a client that it uses is
// closed.
func (s *Server) Shutdown() (ended bool) {
	timeout, stopTimer := context.WithTimeout(context.Background(), s.shutdownTimeout)
	defer stopTimer()
	s.gate.open()
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s.eachServer((*asynq.Server).Stop) // each waits for its poll
		close(stopped)
		s.eachServer((*asynq.Server).Shutdown)
		s.running.Wait()
	}()
	select {
	case <-stopped:
	case <-time.After(min(pollGrace, s.shutdownTimeout)):
	}
	s.cancel()
	select {
	case <-done:
	case <-timeout.Done():
		s.log.Warn("the worker ends before its tasks: their shutdown has taken too long")
		return false
	}
	if err := s.closeGated(); err != nil {
		s.log.Warn("cannot close the connections to Redis", "error", err)
	}
	return true
}

// eachServer calls do for all Asynq servers at once, and waits until all calls have returned.
func (s *Server) eachServer(do func(*asynq.Server)) {
	var calls sync.WaitGroup
	for _, server := range s.servers {
		calls.Go(func() { do(server) })
	}
	calls.Wait()
}

// asynqLog writes Asynq's log lines to slog.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.logAt(slog.LevelWarn, fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.logAt(slog.LevelError, fmt.Sprint(args...)) }

// aboutTasks holds the beginnings of Asynq's warnings and errors about tasks. Its other warnings
// and errors are about Redis.
var aboutTasks = []string{"recovering from panic", "Retry exhausted", "Quitting worker", "revoke task"}

// logAt writes a warning or an error, marked as an outage of Redis unless it is about a task.
func (l asynqLog) logAt(level slog.Level, message string) {
	outage := logs.OutageOf(logs.Redis)
	if slices.ContainsFunc(aboutTasks, func(start string) bool { return strings.HasPrefix(message, start) }) {
		outage = slog.Attr{}
	}
	l.log.Log(context.Background(), level, "asynq", outage, "message", message)
}

// Fatal logs an error from which Asynq cannot recover. It does not end the process: the readiness
// checks report the failure.
func (l asynqLog) Fatal(args ...any) { l.log.Error("asynq: fatal", "message", fmt.Sprint(args...)) }
