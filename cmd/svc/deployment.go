package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// deployment returns the deployment of this process. It includes the rail only if the process uses
// one or the configuration names one.
func (c *Config) deployment(usesRail bool) models.Deployment {
	d := models.Deployment{Environment: c.Env}
	if usesRail || c.Rail != "" || c.RailID != "" {
		d.Rail, d.RailID = c.rail(), c.RailID
	}
	return d
}

// rail returns the name of the rail adapter.
func (c *Config) rail() string {
	switch {
	case c.Rail != "":
		return c.Rail
	case c.Env == models.EnvProduction:
		return "http"
	default:
		return "sandbox"
	}
}

// join joins the database's deployment and refuses the database of another one. The first process
// determines the environment, and the first process with a rail determines the rail. Once svc dev
// has joined, every further process may send webhooks to loopback addresses.
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

// explainMismatch names the variables to check if the database belongs to another deployment.
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
	if errors.Is(err, models.ErrNotFound) || isUndefinedTable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return explainMismatch(d.Check(own))
}

// checkEnvironment opens the dashboard's store and checks its deployment. The dashboard starts even
// if the database is unavailable: checkEnvironment then logs a warning and returns the store.
func (s *service) checkEnvironment(ctx context.Context) (*models.Store, error) {
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

func isUndefinedTable(err error) bool {
	const undefinedTable = "42P01"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == undefinedTable
}

func (p *program) railAdminCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rail", Short: "Show or replace the payment rail that the database remembers"}
	show := func(ctx context.Context, store *models.Store, _ []string) error {
		d, err := store.Deployment(ctx)
		if err != nil {
			return err
		}
		return p.table("ENVIRONMENT\tRAIL\tID", func(row func(...any)) { row(d.Environment, d.Rail, d.RailID) })
	}
	replace := command("replace",
		"Make the database remember the rail of SVC_RAIL and SVC_RAIL_ID; stop the workers first",
		func(ctx context.Context, _ []string) error { return p.withAnyRail(ctx, p.replaceRail) })
	cmd.AddCommand(p.storeCommand("show", "Print the environment and the rail", show),
		acting(models.ActReplaceRail, replace))
	return cmd
}

func (p *program) replaceRail(ctx context.Context, cfg Config, store *models.Store) error {
	if cfg.Env == "" {
		return errors.New("SVC_ENV must be sandbox or production")
	}
	err := store.ReplaceRail(ctx, cfg.rail(), cfg.RailID)
	switch {
	case errors.Is(err, models.ErrInDoubt):
		return explain(err, "debits or payments are in flight or in doubt, and only the old rail knows their "+
			"outcomes: let the workers finish them first")
	case errors.Is(err, models.ErrNotFound):
		return explain(err, "no process has used this database yet: the first process determines its rail")
	case err != nil:
		return err
	}
	fmt.Fprintf(p.stdout, "the rail is %s %s\n", cfg.rail(), cfg.RailID)
	return nil
}
