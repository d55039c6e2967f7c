package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"partnerbilling/api"
	"partnerbilling/api/auth"
	"partnerbilling/api/ratelimit"
	"partnerbilling/api/web"
	"partnerbilling/jobs"
	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/webhook"
	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
	"partnerbilling/models/tracing"
	"partnerbilling/queue"
)

// service is a process of the service. Its parts run together until the context ends or a part
// fails.
type service struct {
	cfg     Config
	log     *slog.Logger
	metrics *prometheus.Registry
	ring    *seal.Keyring   // nil until openKeyring
	replica *models.Replica // nil until useReplica, and without SVC_DATABASE_READ_URL
	address queue.Redis
	redis   redis.UniversalClient // the shared client of address
	spans   trace.TracerProvider  // nil until tracerProvider, and without a collector

	stdout   io.Writer
	opsURL   string // of health and metrics, if they have a separate listener
	dev      bool   // the process is svc dev
	loopback bool   // webhooks may go to loopback addresses; set by join

	parts   []func(context.Context) error
	closers []func() error
}

// newService creates what every serving command needs. It connects to no server.
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
	s.closers = append(s.closers, s.redis.Close)
	s.log.Info("configuration", "config", cfg)
	return s, nil
}

func (p *program) logger(cfg Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	var handler slog.Handler = slog.NewJSONHandler(p.stderr, options)
	if cfg.LogFormat == "text" {
		handler = slog.NewTextHandler(p.stderr, options)
	}
	return slog.New(logs.NewHandler(handler, time.Now))
}

// openKeyring reads the master keys, which only the API and the worker need.
func (s *service) openKeyring() (err error) {
	if s.ring == nil {
		s.ring, err = s.cfg.keyring()
	}
	return err
}

// openStore opens a connection pool. service.close closes it after all parts have ended.
func (s *service) openStore(name string, queued int) (*models.Store, error) {
	store, err := models.Open(postgres.Config{
		DSN: s.cfg.DatabaseURL, MaxConns: s.cfg.DatabaseConns, MaxQueued: queued, ApplicationName: "svc " + name,
		Pooled: s.cfg.pooled(),
	})
	if err != nil {
		return nil, fmt.Errorf("SVC_DATABASE_URL: %w", err)
	}
	store.SetQuotas(s.cfg.quotas(), time.Now) // measures the age of readings only
	store.SetRetention(s.cfg.Retention.models())
	store.SetKeyring(s.ring)
	s.closers = append(s.closers, store.Close)
	s.metrics.MustRegister(collectors.NewDBStatsCollector(store.DB().DB, name))
	return store, nil
}

// pooled reports whether the database URL leads to a pooler in transaction mode.
func (c *Config) pooled() bool { return c.DatabasePooler == "transaction" }

// checkDatabase checks the settings of sessions, the schema and the durability of commits at start.
// Production refuses a database that may lose commits; the sandbox logs a warning.
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

// checkReady checks for readiness that the database accepts writes and has the schema.
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

// addAPI adds the API on a listener. extra, if not nil, changes the API's configuration.
func (s *service) addAPI(ctx context.Context, ln net.Listener, extra func(*api.Config)) error {
	if err := s.openKeyring(); err != nil {
		return err
	}
	store, err := s.openStore("api", s.cfg.DatabaseQueue)
	if err != nil {
		return err
	}
	if err := s.useReplica(store); err != nil {
		return err
	}
	if err := s.checkDatabase(ctx, store); err != nil {
		return err
	}
	if err := s.join(ctx, store, false); err != nil {
		return err
	}
	keys := models.NewKeys(store, s.ring)
	if err := keys.Ensure(ctx); err != nil {
		return fmt.Errorf("service keys: %w", err)
	}
	ordinary, batches, err := s.cfg.rates()
	if err != nil {
		return err
	}
	limiter := s.limiter(ordinary, batches)
	link, err := web.ParseAppLink(s.cfg.AppLink)
	if err != nil {
		return err
	}
	proxies, err := s.cfg.proxies()
	if err != nil {
		return err
	}
	provider, err := s.tracerProvider(ctx)
	if err != nil {
		return err
	}
	tracer := tracing.New(provider)
	dispatcher := queue.NewDispatcher(store, s.redis, queue.DispatcherConfig{
		InFlight: s.cfg.InFlight, Tracer: tracer, Log: s.log,
	})
	cfg := api.Config{
		Sites: store, Limiter: limiter, Store: store, Keys: keys, PublicBaseURL: s.cfg.PublicBaseURL, AppLink: link,
		Notify: dispatcher.Notify, Debits: dispatcher, Log: s.log, TracerProvider: provider, Metrics: s.metrics,
		ShutdownTimeout: s.cfg.ShutdownWithin,
		Concurrency:     s.cfg.APIConcurrency, QueueWait: s.cfg.APIQueueWait,
		MaxConnectionsPerAddress: s.cfg.APIAddressConns,
		SeparateOpsListener:      s.cfg.OpsListen != "", Proxies: proxies,
		Checks: api.CacheChecks([]api.ReadinessCheck{
			{Name: "postgres", Required: true, Check: func(ctx context.Context) error {
				return checkReady(ctx, store)
			}},
			{Name: "redis", Check: queue.PingRedis(s.redis)},
		}),
	}
	if cfg.SeparateOpsListener {
		if err := s.addOps(ctx, s.cfg.OpsListen, cfg.Checks); err != nil {
			return err
		}
	}
	s.authenticate(&cfg, store, keys, ordinary)
	if s.cfg.Env == models.EnvSandbox {
		cfg.Sandbox = &api.Sandbox{Loopback: s.loopback}
	}
	webhooks := jobs.NewDeliverWebhook(jobs.Config{
		Store: store, Keyring: s.ring, WebhookTargets: s.webhookTargets(), Notify: dispatcher.Notify, Tracer: tracer,
		Log: s.log,
	})
	s.closers = append(s.closers, func() error { webhooks.Sender.Close(); return nil })
	cfg.Webhooks = webhooks
	if extra != nil {
		extra(&cfg)
	}
	server := api.New(cfg)
	s.parts = append(s.parts,
		func(ctx context.Context) error { return serve(ctx, server, ln, dispatcher) },
		func(ctx context.Context) error { keys.Run(ctx); return nil })
	return nil
}

// serve runs the server and its dispatcher. The dispatcher ends last, so that it can dispatch the
// tasks of requests that complete during the shutdown.
func serve(ctx context.Context, server *api.Server, ln net.Listener, dispatcher *queue.Dispatcher) error {
	dispatching, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var group errgroup.Group
	group.Go(func() error { return dispatcher.RunInline(dispatching) })
	err := server.Run(ctx, ln)
	end()
	return errors.Join(err, group.Wait())
}

// webhookTargets returns the permitted targets of webhooks.
func (s *service) webhookTargets() models.WebhookTargets {
	return models.WebhookTargets{Sandbox: s.cfg.Env == models.EnvSandbox, Loopback: s.loopback}
}

// authenticate configures access tokens: those of the outside issuer if one is configured,
// otherwise the service's own.
func (s *service) authenticate(cfg *api.Config, store *models.Store, keys *models.Keys, ordinary ratelimit.Rate) {
	if s.cfg.IssuerURL != "" {
		cfg.Authenticator = auth.NewOutsideAuthenticator(store, auth.OutsideIssuer{
			URL: s.cfg.IssuerURL, JWKSURL: s.cfg.IssuerJWKSURL, Audience: s.cfg.IssuerAudience,
		}, time.Now)
		return
	}
	own := auth.Config{
		URL: s.cfg.PublicBaseURL, ClientTokens: bound(ordinary.Divide(tokenDivisor)), AddressTokens: bound(ordinary),
		Log: s.log, Metrics: s.metrics,
	}
	cfg.Issuer = auth.NewIssuer(store, keys, own)
	cfg.Authenticator = auth.NewAuthenticator(store, keys, own)
}

// tokenDivisor divides the rate of ordinary requests into that of tokens.
const tokenDivisor = 10

// bound returns the bound of a rate.
func bound(r ratelimit.Rate) auth.Bound {
	if r.PerSecond <= 0 {
		return auth.Bound{}
	}
	return auth.Bound{Every: time.Duration(float64(time.Second) / r.PerSecond), Burst: r.Burst}
}

func (s *service) limiter(ordinary, batches ratelimit.Rate) api.Limiter {
	limiter := ratelimit.New(s.address.ConnectBriefly(ratelimit.Timeout), map[ratelimit.Class]ratelimit.Rate{
		ratelimit.Default: ordinary, ratelimit.Tokens: ordinary.Divide(tokenDivisor), ratelimit.Batches: batches,
	})
	s.closers = append(s.closers, limiter.Close)
	return limiter
}

// addWorker adds a worker: the dispatcher's loop, and the server that runs the jobs of the queues.
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
	payments, concurrency, err := s.openRail(store)
	if err != nil {
		return err
	}
	tracer, err := s.tracer(ctx)
	if err != nil {
		return err
	}
	dispatcher := queue.NewDispatcher(store, s.redis, queue.DispatcherConfig{
		InFlight: s.cfg.InFlight, Recurring: jobs.Recurring, Tracer: tracer, Log: s.log,
	})
	metrics := jobs.NewMetrics(s.metrics)
	server := queue.NewServer(s.redis, jobs.New(jobs.Config{
		Store: store, Rail: payments, RailConcurrency: concurrency, Metrics: metrics, Log: s.log,
		Tracer: tracer, Keyring: s.ring, WebhookTargets: s.webhookTargets(), Notify: dispatcher.Notify,
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
		server.Shutdown()
		return nil
	})
	return nil
}

// awaitRedis waits until Redis is available and safe to use, so that a worker that starts during an
// outage survives. It logs an error at least every minute. It returns false if ctx ends first.
func (s *service) awaitRedis(ctx context.Context) bool {
	pause := time.Second
	for ctx.Err() == nil {
		err := queue.CheckRedis(ctx, s.redis)
		if err == nil {
			return true
		}
		// Without the attribute of an outage: other records about it must not suppress this one.
		s.log.ErrorContext(ctx, "the worker waits for Redis", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, time.Minute)
		}
	}
	return false
}

// openRail creates the rail adapter and returns how many debits may be in flight on it. The sandbox
// debits a whole chunk in one statement, so only the number of tasks limits it. Slow accounts in
// batches then do not delay payments.
func (s *service) openRail(store *models.Store) (payments rail.Rail, concurrency int, err error) {
	if s.cfg.rail() == "sandbox" {
		return rail.NewSandbox(store), s.cfg.Concurrency*models.ChunkRows + s.cfg.CheckoutConcurrency, nil
	}
	gateway, err := s.cfg.openGateway(s.redis)
	if err != nil {
		return nil, 0, err
	}
	s.closers = append(s.closers, func() error { gateway.Close(); return nil })
	return gateway, s.cfg.RailConcurrency, nil
}

// openGateway creates the adapter of a payment gateway. With a rate, the whole fleet shares it
// through Redis.
func (c *Config) openGateway(client redis.UniversalClient) (*rail.HTTP, error) {
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
		cfg.Limiter = queue.NewFleetLimiter(client, "rail", c.RailRate)
	}
	gateway, err := rail.NewHTTP(cfg)
	if err != nil {
		return nil, fmt.Errorf("SVC_RAIL_URL: %w", err)
	}
	return gateway, nil
}

func (c *Config) railKey() (rail.SigningKey, error) {
	id, secret, ok := strings.Cut(c.RailKey, ":")
	if !ok || id == "" || secret == "" {
		return rail.SigningKey{}, errors.New("SVC_RAIL_KEY must be id:secret")
	}
	return rail.SigningKey{ID: id, Secret: []byte(secret)}, nil
}

// addHTTP adds a plain HTTP server, for commands without the API.
func (s *service) addHTTP(ln net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	s.parts = append(s.parts, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownWithin)
			defer cancel()
			if err := server.Shutdown(end); err != nil {
				_ = server.Close()
			}
		})
		defer stop()
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
}

// run runs all parts until ctx ends or a part fails, and then closes the service.
func (s *service) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range s.parts {
		group.Go(func() error { return part(ctx) })
	}
	err := group.Wait()
	return errors.Join(err, s.close())
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

// listen opens a listener. If another process uses the address, the error says so.
func listen(ctx context.Context, address string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return ln, nil
	}
	if isAddressInUse(err) {
		return nil, fmt.Errorf("%s is in use by another process: end it, or choose another address with "+
			"SVC_LISTEN or SVC_OPS_LISTEN", address)
	}
	return nil, fmt.Errorf("SVC_LISTEN: %w", err)
}

// ensureDir creates the data folder. Mode 0711 lets the private servers' account enter it, but not
// list it. Each file in it is private.
func ensureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // see above
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}
