package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// deployment is what this process would be to a database. Only a process that uses a rail, or was told of one, has one.
func (c *Config) deployment(usesRail bool) models.Deployment {
	d := models.Deployment{Environment: models.Environment(c.Env)}
	if usesRail || c.Rail != "" || c.RailID != "" {
		d.Rail, d.RailID = c.rail(), c.RailID
	}
	return d
}

// rail is the adapter of the payment rail.
func (c *Config) rail() string {
	switch {
	case c.Rail != "":
		return c.Rail
	case c.Env == production:
		return "http"
	default:
		return "sandbox"
	}
}

// join refuses to work on the database of another deployment, and remembers this one if it is the first. What the database
// says of webhooks holds for every process that joins.
func (s *service) join(ctx context.Context, store *models.Store, usesRail bool) error {
	own := s.cfg.deployment(usesRail)
	own.WebhookLoopback = s.dev
	joined, err := store.JoinDeployment(ctx, own)
	if err != nil {
		return refusal(err)
	}
	s.loopback = joined.WebhookLoopback || s.cfg.WebhookLoopback == "on"
	return nil
}

// refusal says what to look at when a process and a database do not go together.
func refusal(err error) error {
	if errors.Is(err, models.ErrOtherDeployment) {
		return fmt.Errorf("%w; check SVC_DATABASE_URL, SVC_ENV, SVC_RAIL and SVC_RAIL_ID", err)
	}
	return err
}

// checkDeployment refuses to work on the database of another deployment, as far as the configuration says which one this
// is. A database that no process has joined, or that has no schema yet, is nobody's.
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
	return refusal(d.Differs(own))
}

// checkEnvironment is checkDeployment for a process that does not need the database: it starts although that is away.
func (s *service) checkEnvironment(ctx context.Context) error {
	store, err := s.openStore(ctx, "dashboard", 0)
	if err != nil {
		return err
	}
	err = checkDeployment(ctx, store, s.cfg.deployment(false))
	if errors.Is(err, models.ErrUnavailable) {
		s.log.WarnContext(ctx, "cannot tell whether the database is of this environment", "error", err)
		return nil
	}
	return err
}

func isUndefinedTable(err error) bool {
	const undefinedTable = "42P01"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == undefinedTable
}

// railAdminCommand is about the rail that the database remembers.
func (p *program) railAdminCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rail", Short: "The payment rail that the database remembers"}
	cmd.AddCommand(command("show", "Print the environment and the rail", func(ctx context.Context, _ []string) error {
		return p.withStore(ctx, func(ctx context.Context, _ Config, store *models.Store) error {
			d, err := store.Deployment(ctx)
			if err != nil {
				return err
			}
			return p.table("ENVIRONMENT\tRAIL\tID", func(row func(...any)) { row(d.Environment, d.Rail, d.RailID) })
		})
	}), command("replace", "Have the database remember SVC_RAIL and SVC_RAIL_ID from now on; stop the workers first",
		func(ctx context.Context, _ []string) error { return p.withAnyRail(ctx, 0, p.replaceRail) }))
	return cmd
}

func (p *program) replaceRail(ctx context.Context, cfg Config, store *models.Store) error {
	if cfg.Env == "" {
		return errors.New("SVC_ENV must be sandbox or production")
	}
	err := store.ReplaceRail(ctx, cfg.rail(), cfg.RailID)
	switch {
	case errors.Is(err, models.ErrInDoubt):
		return errors.New("debits or payments are under way or in doubt: only the old rail knows what became of them; " +
			"let the workers finish with it first")
	case errors.Is(err, models.ErrNotFound):
		return errors.New("no process has used this database yet: the first one decides its rail")
	case err != nil:
		return err
	}
	fmt.Fprintf(p.stdout, "the rail is %s %s\n", cfg.rail(), cfg.RailID)
	return nil
}
