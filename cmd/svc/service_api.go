package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/api"
	"partnerbilling/api/auth"
	"partnerbilling/api/ratelimit"
	"partnerbilling/api/web"
	"partnerbilling/jobs"
	"partnerbilling/models"
	"partnerbilling/models/tracing"
	"partnerbilling/queue"
)

// drainTime is how long a stopping API lets clients close their connections, before it closes the
// rest. Most clients send a request in that time, and the answer tells them to close.
const drainTime = 2 * time.Second

// addAPI adds the API on a listener, with the dispatcher of the tasks that requests create. extra,
// if not nil, changes the configuration of the API.
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
		Notify: dispatcher.Notify, Log: s.log, TracerProvider: provider, Metrics: s.metrics,
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
	if !s.dev { // svc dev ends at once: its user does not want to wait for clients
		cfg.DrainTime = drainTime
	}
	if cfg.SeparateOpsListener {
		if err := s.addOps(ctx, opsListen, s.cfg.OpsListen, cfg.Checks); err != nil {
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
		func(ctx context.Context) error { return runAPI(ctx, server, ln, dispatcher) },
		func(ctx context.Context) error { keys.Run(ctx); return nil })
	return nil
}

// runAPI runs the API's server and its dispatcher until ctx ends. The dispatcher ends last, so that
// it can dispatch the tasks of requests that complete during the shutdown.
func runAPI(ctx context.Context, server *api.Server, ln net.Listener, dispatcher *queue.Dispatcher) error {
	dispatching, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var group errgroup.Group
	group.Go(func() error { return dispatcher.RunInline(dispatching) })
	err := server.Run(ctx, ln)
	end()
	return errors.Join(err, group.Wait())
}

// webhookTargets returns the addresses to which webhooks may go.
func (s *service) webhookTargets() models.WebhookTargets {
	return models.WebhookTargets{Sandbox: s.cfg.Env == models.EnvSandbox, Loopback: s.loopback}
}

// authenticate configures the API's access tokens. If an outside issuer is configured, the API
// accepts only the tokens of that issuer. Otherwise the service issues its own tokens, and accepts
// only these.
func (s *service) authenticate(cfg *api.Config, store *models.Store, keys *models.Keys, ordinary ratelimit.Rate) {
	if s.cfg.IssuerURL != "" {
		cfg.Authenticator = auth.NewOutsideAuthenticator(store, auth.OutsideIssuer{
			URL: s.cfg.IssuerURL, JWKSURL: s.cfg.IssuerJWKSURL, Audience: s.cfg.IssuerAudience,
		}, time.Now)
		return
	}
	own := auth.Config{
		URL: s.cfg.PublicBaseURL, ClientTokens: bound(tokenRate(ordinary)), AddressTokens: bound(ordinary),
		Log: s.log, Metrics: s.metrics,
	}
	cfg.Issuer = auth.NewIssuer(store, keys, own)
	cfg.Authenticator = auth.NewAuthenticator(store, keys, own)
}

// tokenRate returns a client's rate of access tokens: a tenth of its rate of requests. The burst is
// the number of tokens of 10 seconds.
func tokenRate(ordinary ratelimit.Rate) ratelimit.Rate { return ordinary.Divide(10, 10) }

// bound converts a rate to the form of package auth. An unlimited rate gives an unlimited bound.
func bound(r ratelimit.Rate) auth.Bound {
	if r.PerSecond <= 0 {
		return auth.Bound{}
	}
	return auth.Bound{Every: time.Duration(float64(time.Second) / r.PerSecond), Burst: r.Burst}
}

// limiter returns the rate limiter of the API. All processes share the limits through Redis.
func (s *service) limiter(ordinary, batches ratelimit.Rate) api.Limiter {
	limiter := ratelimit.New(s.address.ConnectBriefly(ratelimit.Timeout), map[ratelimit.Class]ratelimit.Rate{
		ratelimit.Default: ordinary, ratelimit.Tokens: tokenRate(ordinary), ratelimit.Batches: batches,
	})
	s.closers = append(s.closers, limiter.Close)
	return limiter
}
