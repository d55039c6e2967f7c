package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"partnerbilling/api"
	"partnerbilling/api/web/ops"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// serve runs a serving command until ctx ends: it reads the configuration, calls assemble to add
// the parts of the service, and runs them. listenDefault is the address if SVC_LISTEN is not set.
func (p *program) serve(
	ctx context.Context, listenDefault string, assemble func(context.Context, *service) error,
) error {
	cfg, err := parseConfig(p.environ)
	if err != nil {
		return err
	}
	if err := cfg.complete(listenDefault); err != nil {
		return err
	}
	s, err := p.newService(cfg)
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "configuration", "config", cfg)
	if err := assemble(ctx, s); err != nil {
		return errors.Join(err, s.close())
	}
	return s.run(ctx)
}

// apiCommand returns `svc api`, which serves the API.
func (p *program) apiCommand() *cobra.Command {
	return serving("api", "Serve the API", func(ctx context.Context, _ []string) error {
		return p.serve(ctx, "127.0.0.1:8080", func(ctx context.Context, s *service) error {
			ln, err := listen(ctx, "SVC_LISTEN", s.cfg.Listen)
			if err != nil {
				return err
			}
			if err := s.cfg.completePublicURL(ln.Addr()); err != nil {
				return errors.Join(err, ln.Close())
			}
			if err := s.addAPI(ctx, ln, nil); err != nil {
				return errors.Join(err, ln.Close())
			}
			fmt.Fprintf(p.stdout, "svc api listens on %s\n", ln.Addr())
			return nil
		})
	})
}

// workerCommand returns `svc worker`, which runs the tasks of all queues or of those in --queues.
func (p *program) workerCommand() *cobra.Command {
	var names []string
	cmd := serving("worker", "Run background work", func(ctx context.Context, _ []string) error {
		queues, err := parseQueues(names)
		if err != nil {
			return err
		}
		return p.serve(ctx, "", func(ctx context.Context, s *service) error {
			if err := s.addWorker(ctx, queues); err != nil {
				return err
			}
			return s.addHealth(ctx)
		})
	})
	cmd.Flags().StringSliceVar(&names, "queues", nil,
		"serve only these queues, comma-separated, by default all: "+joinQueues(models.Queues))
	return cmd
}

// parseQueues returns the queues of --queues. It refuses unknown names.
func parseQueues(names []string) ([]models.Queue, error) {
	var queues []models.Queue
	for _, name := range names {
		if !slices.Contains(models.Queues, models.Queue(name)) {
			return nil, fmt.Errorf("--queues: there is no queue %q; there are %s", name, joinQueues(models.Queues))
		}
		queues = append(queues, models.Queue(name))
	}
	return queues, nil
}

// joinQueues lists queues for people, separated by commas.
func joinQueues(queues []models.Queue) string {
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = string(q)
	}
	return strings.Join(names, ", ")
}

// opsListen is the variable that holds the separate address for health and metrics.
const opsListen = "SVC_OPS_LISTEN"

// addHealth serves a worker's health and metrics, if SVC_OPS_LISTEN or SVC_LISTEN is set. In
// production it refuses a database that may lose commits.
func (s *service) addHealth(ctx context.Context) error {
	variable, address := opsListen, s.cfg.OpsListen
	if address == "" {
		variable, address = "SVC_LISTEN", s.cfg.Listen
	}
	if address == "" {
		return nil
	}
	store, err := s.openStore("health", 0)
	if err != nil {
		return err
	}
	if s.cfg.Env == models.EnvProduction {
		if err := store.RequireDurability(ctx); err != nil {
			return err
		}
	}
	checks := api.CacheChecks([]api.ReadinessCheck{ // a worker needs both
		{Name: "postgres", Required: true, Check: store.Ping},
		{Name: "redis", Required: true, Check: queue.PingRedis(s.redis)},
	})
	api.RegisterDependencies(s.metrics, checks)
	return s.addOps(ctx, variable, address, checks)
}

// addOps serves health and metrics at an address of their own. variable is the variable that holds
// the address, for errors.
func (s *service) addOps(ctx context.Context, variable, address string, checks []api.ReadinessCheck) error {
	ln, err := listen(ctx, variable, address)
	if err != nil {
		return err
	}
	s.addHTTP(ln, api.OpsHandler(checks, s.metrics, s.log))
	s.opsURL = "http://" + ln.Addr().String()
	fmt.Fprintf(s.stdout, "health and metrics are at %s\n", s.opsURL)
	return nil
}

// dashboardCommand returns `svc dashboard`, which serves the operators' pages and Asynq's queue
// dashboard.
func (p *program) dashboardCommand() *cobra.Command {
	return serving("dashboard", "Serve the operators' pages at /ops, with the queue dashboard",
		func(ctx context.Context, _ []string) error {
			return p.serve(ctx, "127.0.0.1:8081", func(ctx context.Context, s *service) error {
				store, err := s.openDashboardStore(ctx)
				if err != nil {
					return err
				}
				ln, err := listen(ctx, "SVC_LISTEN", s.cfg.Listen)
				if err != nil {
					return err
				}
				pages, err := s.newOperatorPages(store)
				if err != nil {
					return errors.Join(err, ln.Close())
				}
				if s.cfg.OpsListen != "" {
					checks := []api.ReadinessCheck{ // only the queue dashboard needs Redis
						{Name: "postgres", Required: true, Check: func(ctx context.Context) error {
							return checkReady(ctx, store)
						}},
						{Name: "redis", Check: queue.PingRedis(s.redis)},
					}
					if err := s.addOps(ctx, opsListen, s.cfg.OpsListen, api.CacheChecks(checks)); err != nil {
						return errors.Join(err, ln.Close())
					}
				}
				s.addHTTP(ln, pages)
				fmt.Fprintf(p.stdout, "the dashboard is at http://%s%s\n", ln.Addr(), ops.Path)
				return nil
			})
		})
}

// openDashboardStore opens the dashboard's store with the replica. It refuses the database of
// another deployment. If the database is unavailable, it logs a warning, and the dashboard starts
// anyway.
func (s *service) openDashboardStore(ctx context.Context) (*models.Store, error) {
	store, err := s.openStore("dashboard", 0)
	if err != nil {
		return nil, err
	}
	if err := s.useReplica(store); err != nil {
		return nil, err
	}
	err = checkDeployment(ctx, store, s.cfg.deployment(false))
	if errors.Is(err, models.ErrUnavailable) {
		s.log.WarnContext(ctx, "cannot check the environment of the database", "error", err)
		return store, nil
	}
	return store, err
}

// railCommand returns `svc rail`, a payment gateway for sandboxes: it serves the sandbox rail over
// the HTTP contract that production gateways implement.
func (p *program) railCommand() *cobra.Command {
	short := "Serve the payment gateway contract from the sandbox rail"
	return serving("rail", short, func(ctx context.Context, _ []string) error {
		return p.serve(ctx, "127.0.0.1:8082", func(ctx context.Context, s *service) error {
			if s.cfg.Env == models.EnvProduction {
				return errors.New("svc rail simulates a bank: it runs only in the sandbox")
			}
			key, err := s.cfg.railKey()
			if err != nil {
				return err
			}
			store, err := s.openStore("rail", 0)
			if err != nil {
				return err
			}
			if err := checkSchema(ctx, store); err != nil {
				return err
			}
			// The deployment names no rail, because svc rail is the rail.
			own := models.Deployment{Environment: s.cfg.Env}
			if err := checkDeployment(ctx, store, own); err != nil {
				return err
			}
			handler, err := rail.NewServer(rail.ServerConfig{
				Rail: rail.NewSandbox(store), Keys: []rail.SigningKey{key}, Log: s.log,
			})
			if err != nil {
				return err
			}
			ln, err := listen(ctx, "SVC_LISTEN", s.cfg.Listen)
			if err != nil {
				return err
			}
			s.addHTTP(ln, handler)
			fmt.Fprintf(p.stdout, "the gateway is at http://%s\n", ln.Addr())
			return nil
		})
	})
}

// openapiCommand returns `svc openapi`, which prints the OpenAPI document of the API.
func (p *program) openapiCommand() *cobra.Command {
	return command("openapi", "Print the OpenAPI document", func(context.Context, []string) error {
		document, err := api.OpenAPI()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "%s\n", document)
		return err
	})
}
