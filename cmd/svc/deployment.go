package main

import (
	"context"
	"errors"
	"fmt"

	"partnerbilling/migrations"
	"partnerbilling/models"
)

// deployment returns the deployment of this process: its environment and its rail. The database
// remembers its own deployment, and processes of another one must not use it. The rail is empty
// unless the process uses one or the configuration names one. An empty rail matches every rail.
func (c *Config) deployment(usesRail bool) models.Deployment {
	d := models.Deployment{Environment: c.Env}
	if usesRail || c.Rail != "" || c.RailID != "" {
		d.Rail, d.RailID = c.railName(), c.RailID
	}
	return d
}

// The names of the rail adapters, as in SVC_RAIL and models.Deployment.
const (
	railSandbox = "sandbox"
	railHTTP    = "http"
)

// railName returns the name of the rail adapter: SVC_RAIL, or else http in production and sandbox
// elsewhere.
func (c *Config) railName() string {
	switch {
	case c.Rail != "":
		return c.Rail
	case c.Env == models.EnvProduction:
		return railHTTP
	default:
		return railSandbox
	}
}

// join makes the process a part of the database's deployment. It refuses the database of another
// deployment. The first process determines the environment, and the first process with a rail
// determines the rail. Once svc dev has joined, every further process may send webhooks to loopback
// addresses.
func (s *service) join(ctx context.Context, store *models.Store, usesRail bool) error {
	own := s.cfg.deployment(usesRail)
	own.WebhookLoopback = s.dev
	joined, err := store.JoinDeployment(ctx, own)
	if err != nil {
		return explainMismatch(err)
	}
	s.loopback = joined.WebhookLoopback || s.cfg.WebhookLoopback == "on"
	return nil
}

// explainMismatch adds to models.ErrOtherDeployment the variables to check. It returns any other
// error as it is.
func explainMismatch(err error) error {
	if errors.Is(err, models.ErrOtherDeployment) {
		return fmt.Errorf("%w; check SVC_DATABASE_URL, SVC_ENV, SVC_RAIL and SVC_RAIL_ID", err)
	}
	return err
}

// checkDeployment refuses the database of a deployment other than own. It checks nothing if own has
// no environment. It accepts a database without a schema, and one that no process has joined.
func checkDeployment(ctx context.Context, store *models.Store, own models.Deployment) error {
	if own.Environment == "" {
		return nil
	}
	d, err := store.Deployment(ctx)
	if errors.Is(err, models.ErrNotFound) || migrations.IsUndefinedTable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return explainMismatch(d.Check(own))
}
