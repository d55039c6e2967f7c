package queue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
)

// ServerConfig tunes a Server.
type ServerConfig struct {
	// Concurrency is how many tasks run at once; default 16.
	Concurrency int
	// Queues are the queues to serve; default all.
	Queues []models.Queue
	// ShutdownTimeout is how long running tasks may go on after a shutdown began; default 40 s. It is above what any run
	// needs once its context has ended.
	ShutdownTimeout time.Duration
	Log             *slog.Logger
}

// Server fetches tasks and runs their jobs.
type Server struct {
	asynq  *asynq.Server
	jobs   Jobs
	cancel context.CancelFunc
}

// NewServer makes a server; it does nothing before Start.
func NewServer(client *redis.Client, jobs Jobs, cfg ServerConfig) *Server {
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 16
	}
	if cfg.ShutdownTimeout <= 0 {
		cfg.ShutdownTimeout = 40 * time.Second
	}
	if len(cfg.Queues) == 0 {
		cfg.Queues = Names()
	}
	queues := make(map[string]int, len(cfg.Queues))
	for _, q := range cfg.Queues {
		queues[string(q)] = weights[q]
	}
	base, cancel := context.WithCancel(context.Background())
	return &Server{jobs: jobs, cancel: cancel, asynq: asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency:              cfg.Concurrency,
		Queues:                   queues,
		BaseContext:              func() context.Context { return base },
		TaskCheckInterval:        100 * time.Millisecond,
		DelayedTaskCheckInterval: time.Second,
		ShutdownTimeout:          cfg.ShutdownTimeout,
		RetryDelayFunc:           retryAfter,
		IsFailure:                isFailure,
		Logger:                   asynqLog{cfg.Log},
		ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
			cfg.Log.ErrorContext(ctx, "task failed", "kind", t.Type(), "task", string(t.Payload()), "error", err)
		}),
	})}
}

// Start begins to fetch tasks, and returns.
func (s *Server) Start() error {
	if err := s.asynq.Start(s.jobs); err != nil {
		return fmt.Errorf("queue: start: %w", err)
	}
	return nil
}

// Shutdown fetches no more, ends the running tasks' contexts, and waits until they have written down where they are.
func (s *Server) Shutdown() {
	s.asynq.Stop()
	s.cancel()
	s.asynq.Shutdown()
}

// asynqLog writes Asynq's own log lines to slog.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn("asynq", "message", fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Error("asynq", "message", fmt.Sprint(args...)) }

// Fatal is called for what Asynq cannot go on from; it does not end the process here, the readiness checks tell.
func (l asynqLog) Fatal(args ...any) { l.log.Error("asynq: fatal", "message", fmt.Sprint(args...)) }
