package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
	"partnerbilling/queue"
)

// service is a process of the service, such as svc api. Commands add parts to it, which run
// together until the context ends or a part fails.
type service struct {
	cfg     Config
	log     *slog.Logger
	metrics *prometheus.Registry
	ring    *seal.Keyring   // nil until openKeyring
	replica *models.Replica // nil until useReplica, and without SVC_DATABASE_READ_URL
	address queue.Redis
	redis   redis.UniversalClient // the shared client of address
	busy    bool                  // a worker has not ended in time and still uses redis
	spans   trace.TracerProvider  // nil until tracerProvider, and without a collector

	stdout   io.Writer
	opsURL   string // of health and metrics, if they have a separate listener
	dev      bool   // the process is svc dev
	loopback bool   // webhooks may go to loopback addresses; set by join

	parts   []func(context.Context) error // each returns when the context ends
	closers []func() error                // called in reverse order after all parts have ended
}

// newService returns a service without parts: its log, its metrics, and a client of Redis that has
// not connected yet.
func (p *program) newService(cfg Config) (*service, error) {
	s := &service{cfg: cfg, stdout: p.stdout, log: p.logger(cfg), metrics: prometheus.NewRegistry()}
	s.metrics.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	if cfg.DatabaseURL == "" || cfg.RedisURL == "" {
		return nil, errors.New("SVC_DATABASE_URL and SVC_REDIS_URL must be set")
	}
	var err error
	queue.LogRedis(s.log)
	if s.address, err = cfg.redis(); err != nil {
		return nil, err
	}
	s.redis = s.address.Connect()
	s.closers = append(s.closers, s.closeRedis)
	return s, nil
}

// closeRedis closes the client of Redis unless a worker still uses it. The process ends anyway.
func (s *service) closeRedis() error {
	if s.busy {
		return nil
	}
	return s.redis.Close()
}

// logger returns a logger that writes to standard error, in the configured format and level.
func (p *program) logger(cfg Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	var handler slog.Handler = slog.NewJSONHandler(p.stderr, options)
	if cfg.LogFormat == "text" {
		handler = slog.NewTextHandler(p.stderr, options)
	}
	return slog.New(logs.NewHandler(handler, time.Now))
}

// openKeyring reads the master keys. Only the API and the worker need them, and call it before
// openStore.
func (s *service) openKeyring() (err error) {
	if s.ring == nil {
		s.ring, err = s.cfg.keyring()
	}
	return err
}

// openStore opens a store with a connection pool of its own. name tells the pools of the process
// apart in Postgres and in the metrics. At most queued calls wait for a connection; 0 means no
// limit. service.close closes the store.
func (s *service) openStore(name string, queued int) (*models.Store, error) {
	store, err := models.Open(postgres.Config{
		DSN: s.cfg.DatabaseURL, MaxConns: s.cfg.DatabaseConns, MaxQueued: queued, ApplicationName: "svc " + name,
		Pooled: s.cfg.pooled(),
	})
	if err != nil {
		return nil, fmt.Errorf("SVC_DATABASE_URL: %w", err)
	}
	store.SetQuotas(s.cfg.quotas(), time.Now) // measures the age of readings only
	store.SetRetention(s.cfg.Retention.periods())
	store.SetKeyring(s.ring)
	s.closers = append(s.closers, store.Close)
	s.metrics.MustRegister(collectors.NewDBStatsCollector(store.DB().DB, name))
	return store, nil
}

// checkDatabase checks the database at the start: the session settings behind a pooler, the schema,
// and whether commits survive a crash. Production refuses a database that may lose commits; the
// sandbox logs a warning.
func (s *service) checkDatabase(ctx context.Context, store *models.Store) error {
	if s.cfg.pooled() {
		if err := store.CheckSettings(ctx); err != nil {
			return err
		}
	}
	if err := checkSchema(ctx, store); err != nil {
		return err
	}
	if s.cfg.Env == models.EnvProduction {
		return store.RequireDurability(ctx)
	}
	if err := store.CheckDurability(ctx); errors.Is(err, postgres.ErrNotDurable) {
		s.log.WarnContext(ctx, "a crash of the database may lose acknowledged commits; production refuses to start",
			"error", err)
	} else if err != nil {
		return err
	}
	return nil
}

// checkReady is the readiness check of the database: it accepts writes, and has all migrations.
func checkReady(ctx context.Context, store *models.Store) error {
	if err := store.Ping(ctx); err != nil {
		return err
	}
	return checkSchema(ctx, store)
}

// checkSchema checks that the database has all migrations of this binary.
func checkSchema(ctx context.Context, store *models.Store) error {
	pending, err := migrations.Pending(ctx, store.DB())
	if err != nil {
		return fmt.Errorf("the database cannot be used: %w", err)
	}
	if pending > 0 {
		return fmt.Errorf("the database lacks %d migrations; run `svc migrate up`", pending)
	}
	return nil
}

// addHTTP adds an HTTP server for a handler. When the context ends, the server accepts no more
// requests, and open ones have SVC_SHUTDOWN_WITHIN to finish. The API has a server of its own.
func (s *service) addHTTP(ln net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	s.parts = append(s.parts, func(ctx context.Context) error {
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(ended)
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownWithin)
			defer cancel()
			if err := server.Shutdown(end); err != nil {
				_ = server.Close()
			}
		})
		err := server.Serve(ln)
		if !stop() {
			<-ended // Serve returns when the shutdown begins
		}
		if !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
}

// run runs all parts until ctx ends or a part fails, and then closes the service.
func (s *service) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		s.log.Info("shutdown begins", "within", s.cfg.ShutdownWithin.String())
	})()
	group, running := errgroup.WithContext(ctx)
	for _, part := range s.parts {
		group.Go(func() error { return part(running) })
	}
	err := errors.Join(group.Wait(), s.close())
	if ctx.Err() != nil {
		s.log.Info("shutdown ends")
	}
	return err
}

// close calls the closers in reverse order.
func (s *service) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// listen opens a TCP listener at an address. Errors name the environment variable that holds the
// address, and say if another process uses the address.
func listen(ctx context.Context, variable, address string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return ln, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use by another process: end it, or choose another address with %s",
			address, variable)
	}
	return nil, fmt.Errorf("%s: %w", variable, err)
}
