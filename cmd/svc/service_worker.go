package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/jobs"
	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/webhook"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// addWorker adds a worker: the dispatcher, which sends due tasks to Redis, and the server that runs
// the tasks of some queues. If queues is empty, it serves all queues.
func (s *service) addWorker(ctx context.Context, queues []models.Queue) error {
	if err := s.openKeyring(); err != nil {
		return err
	}
	store, err := s.openStore("worker", 0)
	if err != nil {
		return err
	}
	if err := s.checkDatabase(ctx, store); err != nil {
		return err
	}
	if err := s.join(ctx, store, true); err != nil {
		return err
	}
	tracer, err := s.tracer(ctx)
	if err != nil {
		return err
	}
	dispatcher := queue.NewDispatcher(store, s.redis, queue.DispatcherConfig{
		InFlight: s.cfg.InFlight, Recurring: jobs.Recurring, Tracer: tracer, Log: s.log,
	})
	payments, concurrency, err := s.openRail(store, dispatcher.Workers)
	if err != nil {
		return err
	}
	metrics := jobs.NewMetrics(s.metrics)
	var server *queue.Server
	server = queue.NewServer(s.redis, jobs.New(jobs.Config{
		Store: store, Rail: payments, RailConcurrency: concurrency, Metrics: metrics, Log: s.log,
		Tracer: tracer, Keyring: s.ring, WebhookTargets: s.webhookTargets(), Notify: dispatcher.Notify,
		RunClaimed:      func(tasks []models.Task) { server.RunClaimed(tasks) },
		WebhookSchedule: webhook.Schedule{Delays: s.cfg.WebhookRetries, Jitter: s.cfg.WebhookJitter},
	}), queue.ServerConfig{
		Concurrency: s.cfg.Concurrency, CheckoutConcurrency: s.cfg.CheckoutConcurrency,
		WebhookConcurrency: s.cfg.WebhookConcurrency, Queues: queues, ShutdownTimeout: s.cfg.ShutdownWithin,
		Tracer: tracer, Log: s.log,
	})
	queue.RegisterMetrics(s.metrics, store, server, s.log)
	jobs.RegisterStateMetrics(s.metrics, store, s.log)
	report := func(ctx context.Context) error { metrics.ReportRail(ctx, store, s.log); return nil }
	s.parts = append(s.parts, dispatcher.Run, report, func(ctx context.Context) error {
		if !s.awaitRedis(ctx) {
			return nil
		}
		if err := server.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		s.busy = !server.Shutdown()
		return nil
	})
	return nil
}

// awaitRedis waits until Redis answers and does not evict keys. A worker that starts during an
// outage thus waits for its end. awaitRedis logs an error at least every minute. It returns false
// if ctx ends first.
func (s *service) awaitRedis(ctx context.Context) bool {
	pause := time.Second
	for ctx.Err() == nil {
		err := queue.CheckRedis(ctx, s.redis)
		if err == nil {
			return true
		}
		// The record has no attribute logs.Outage, so that no other record about the outage
		// suppresses it.
		s.log.ErrorContext(ctx, "the worker waits for Redis", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, time.Minute)
		}
	}
	return false
}

// openRail creates the rail adapter, and returns the number of debits that may be in flight on it.
// The sandbox rail has capacity for all tasks of the worker, so that slow accounts in batches do
// not delay payments. workers is that of openGateway.
func (s *service) openRail(
	store *models.Store, workers func() int,
) (payments rail.Rail, concurrency int, err error) {
	if s.cfg.railName() == railSandbox {
		return rail.NewSandbox(store), s.cfg.Concurrency*models.ChunkRows + s.cfg.CheckoutConcurrency, nil
	}
	gateway, err := s.cfg.openGateway(s.redis, workers)
	if err != nil {
		return nil, 0, err
	}
	s.closers = append(s.closers, func() error { gateway.Close(); return nil })
	return gateway, s.cfg.RailConcurrency, nil
}

// openGateway creates the rail adapter of a payment gateway. All processes share SVC_RAIL_RATE
// through client, a client of Redis. client may be nil if no rate is set. While Redis does not
// answer, this process takes its part of the rate among as many processes as workers returns. If
// workers is nil, the process takes the whole rate.
func (c *Config) openGateway(client redis.UniversalClient, workers func() int) (*rail.HTTP, error) {
	key, err := c.railKey()
	if err != nil {
		return nil, err
	}
	secure, err := c.railTLS()
	if err != nil {
		return nil, err
	}
	cfg := rail.HTTPConfig{
		BaseURL: c.RailURL, AllowPlainHTTP: c.Env == models.EnvSandbox || c.allowsPlain("rail"), TLS: secure,
		Key: key, Concurrency: c.RailConcurrency,
	}
	if c.RailRate > 0 {
		cfg.Limiter = queue.NewFleetLimiter(client, "rail", c.RailRate, workers)
	}
	gateway, err := rail.NewHTTP(cfg)
	if err != nil {
		return nil, fmt.Errorf("SVC_RAIL_URL: %w", err)
	}
	return gateway, nil
}

// railKey parses SVC_RAIL_KEY, the key that signs requests to the gateway.
func (c *Config) railKey() (rail.SigningKey, error) {
	id, secret, ok := strings.Cut(c.RailKey, ":")
	if !ok || id == "" || secret == "" {
		return rail.SigningKey{}, errors.New("SVC_RAIL_KEY must be id:secret")
	}
	return rail.SigningKey{ID: id, Secret: []byte(secret)}, nil
}
