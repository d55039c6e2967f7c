package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// railAdminCommand returns `svc admin rail`, which shows or replaces the rail that the database
// remembers. The first process with a rail writes its rail to the database. Later processes with
// another rail refuse to use the database.
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
		func(ctx context.Context, _ []string) error {
			anyRail := func(cfg *Config) models.Deployment { return models.Deployment{Environment: cfg.Env} }
			return p.withDatabase(ctx, anyRail, p.replaceRail)
		})
	cmd.AddCommand(p.storeCommand("show", "Print the environment and the rail", show),
		acting(models.ActReplaceRail, replace))
	return cmd
}

// replaceRail makes the rail of the configuration the rail of the database. It fails while debits
// or payments may be in doubt.
func (p *program) replaceRail(ctx context.Context, cfg Config, store *models.Store) error {
	if cfg.Env == "" {
		return errors.New("SVC_ENV must be sandbox or production")
	}
	err := store.ReplaceRail(ctx, cfg.railName(), cfg.RailID)
	switch {
	case errors.Is(err, models.ErrInDoubt):
		return explain(err, "debits or payments are in flight or in doubt, and only the old rail knows their "+
			"outcomes: let the workers finish them first, which takes up to seven days after a promotion or a restore")
	case errors.Is(err, models.ErrNotFound):
		return explain(err, "no process has used this database yet: the first process determines its rail")
	case err != nil:
		return err
	}
	fmt.Fprintf(p.stdout, "the rail is %s %s\n", cfg.railName(), cfg.RailID)
	return nil
}
