package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// storeFunc is the part of a command that runs while the database is open.
type storeFunc func(ctx context.Context, cfg Config, store *models.Store) error

// withStore opens the configured database, calls do, and closes the database. It refuses the
// database of another deployment. The audit log records the act of the command, if it has one.
func (p *program) withStore(ctx context.Context, do storeFunc) error {
	own := func(cfg *Config) models.Deployment { return cfg.deployment(false) }
	return p.withDatabase(ctx, own, do)
}

// withKeyring is withStore for a command that needs the master keys. The store has them, too.
func (p *program) withKeyring(
	ctx context.Context, do func(context.Context, *models.Store, *seal.Keyring) error,
) error {
	return p.withStore(ctx, func(ctx context.Context, cfg Config, store *models.Store) error {
		ring, err := cfg.keyring()
		if err != nil {
			return err
		}
		store.SetKeyring(ring)
		return do(ctx, store, ring)
	})
}

// withDatabase does the work of withStore for the deployment that own returns. It refuses the
// database of any other deployment, and writes nothing to a refused database.
func (p *program) withDatabase(ctx context.Context, own func(*Config) models.Deployment, do storeFunc) error {
	cfg, err := parseConfig(p.environ)
	if err != nil {
		return err
	}
	if cfg.DatabaseURL == "" {
		return errors.New("SVC_DATABASE_URL must be set")
	}
	store, err := models.Open(postgres.Config{
		DSN: cfg.DatabaseURL, MaxConns: 4, ApplicationName: "svc admin", Pooled: cfg.pooled(),
	})
	if err != nil {
		return fmt.Errorf("SVC_DATABASE_URL: %w", err)
	}
	err = checkDeployment(ctx, store, own(&cfg))
	if err == nil {
		err = perform(ctx, cfg, store, do)
	}
	return errors.Join(err, store.Close())
}

// usageArgs requires as many arguments as a usage such as "add ORGANISATION NAME" names. It accepts
// more if the usage ends with "...".
func usageArgs(use string) cobra.PositionalArgs {
	n := strings.Count(use, " ")
	if strings.HasSuffix(use, "...") {
		return cobra.MinimumNArgs(n)
	}
	return cobra.ExactArgs(n)
}

// storeCommand returns a command that calls do with the database and the arguments. The usage use
// determines the number of arguments.
func (p *program) storeCommand(
	use, short string, do func(ctx context.Context, store *models.Store, args []string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usageArgs(use),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
				return do(ctx, store, args)
			})
		},
	}
}

// idCommand returns a storeCommand with an id as its first argument. It calls do with the parsed
// id, and with all arguments: args[0] is the text of the id.
func idCommand[N models.Noun](
	p *program, use, short string,
	do func(ctx context.Context, store *models.Store, id models.ID[N], args []string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usageArgs(use),
		RunE: func(cmd *cobra.Command, args []string) error {
			of := func(ctx context.Context, store *models.Store, id models.ID[N]) error {
				return do(ctx, store, id, args)
			}
			return withID(cmd.Context(), p, args[0], of)
		},
	}
}

// withID parses an id, and calls do with the id in withStore.
func withID[N models.Noun](
	ctx context.Context, p *program, text string, do func(context.Context, *models.Store, models.ID[N]) error,
) error {
	var id models.ID[N]
	if err := parseID(&id, text); err != nil {
		return err
	}
	return p.withStore(ctx, func(ctx context.Context, _ Config, store *models.Store) error {
		return do(ctx, store, id)
	})
}

// parseID parses text into id. Its error quotes the text.
func parseID[N models.Noun](id *models.ID[N], text string) error {
	if err := id.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// migrateCommand returns `svc migrate`, which applies or counts the pending migrations, and prints
// the SQL of the roles' privileges.
func (p *program) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Migrate the database schema"}
	p.addActFlags(cmd)
	// migrate returns a subcommand. done is the format of its output, with the number that do
	// returns.
	migrate := func(
		use, short string, do func(context.Context, Config, *models.Store) (int, error), done string,
	) *cobra.Command {
		return command(use, short, func(ctx context.Context, _ []string) error {
			return p.withStore(ctx, func(ctx context.Context, cfg Config, store *models.Store) error {
				n, err := do(ctx, cfg, store)
				if err != nil {
					return err
				}
				fmt.Fprintf(p.stdout, done+"\n", n)
				return nil
			})
		})
	}
	apply := func(ctx context.Context, cfg Config, store *models.Store) (int, error) {
		if cfg.pooled() {
			return 0, errMigratesPooled
		}
		return migrations.Up(ctx, store.DB())
	}
	up := migrate("up", "Apply all pending migrations", apply, "%d migrations applied")
	count := func(ctx context.Context, _ Config, store *models.Store) (int, error) {
		return migrations.Pending(ctx, store.DB())
	}
	status := migrate("status", "Count pending migrations", count, "%d migrations are pending")
	cmd.AddCommand(acting(models.ActMigrate, up), status, p.grantsCommand())
	return cmd
}

// errMigratesPooled refuses to migrate through a pooler. Some migrations run outside of a
// transaction: the pooler would lose their locks and their settings.
var errMigratesPooled = errors.New("migrations need a SVC_DATABASE_URL that leads past the pooler, " +
	"and SVC_DATABASE_POOLER=off")

// roleName matches the names of database roles that need no escape between the quotes that the SQL
// of grants puts around them.
var roleName = regexp.MustCompile("^[a-z_][a-z0-9_-]{0,62}$")

// grantsCommand returns `svc migrate grants`, which prints the SQL of the roles' privileges. It
// does not run the SQL, because only an administrator of the database may alter roles.
func (p *program) grantsCommand() *cobra.Command {
	var roles migrations.Roles
	cmd := command("grants", "Print the SQL that gives the database roles their privileges",
		func(context.Context, []string) error {
			for _, name := range []string{roles.Owner, roles.Runtime, roles.Read} {
				if !roleName.MatchString(name) {
					return fmt.Errorf("%q is no name of a role: lower-case letters, digits, _ and -", name)
				}
			}
			var settings []migrations.Setting
			for _, s := range postgres.SessionSettings() {
				settings = append(settings, migrations.Setting(s))
			}
			_, err := fmt.Fprint(p.stdout, migrations.Grants(roles, settings))
			return err
		})
	cmd.Flags().StringVar(&roles.Owner, "owner", "svc", "role that owns the tables and migrates")
	cmd.Flags().StringVar(&roles.Runtime, "runtime", "billing_runtime", "role of api, worker, dashboard and svc admin")
	cmd.Flags().StringVar(&roles.Read, "read", "billing_read", "role of reports")
	return cmd
}

// adminCommand returns `svc admin`, the operators' commands.
func (p *program) adminCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "admin", Short: "Operate the service"}
	p.addActFlags(cmd)
	cmd.AddCommand(
		p.auditCommand(), p.reconcileCommand(),
		p.logCommand(), p.recountCommand(), p.alertsCommand(), p.organisationCommand(),
		p.siteCommand(), p.clientCommand(), p.keysCommand(), p.restoredCommand(), p.debitCommand(),
		p.railAdminCommand(), p.operatorCommand(), p.customerCommand(), p.debitsCommand(), p.queueCommand(),
		p.pausesCommand(), p.webhookAdminCommand(), p.findCommand(), p.storyCommand(), p.backlogCommand(),
		command("master-key", "Print a new master key for SVC_MASTER_KEY", func(context.Context, []string) error {
			fmt.Fprintln(p.stdout, seal.GenerateMasterKey())
			return nil
		}),
	)
	return cmd
}

// errViolations makes an audit fail after it has printed its violations.
var errViolations = errors.New("the audit found violations")

// auditCommand returns `svc admin audit`, which checks the invariants of money and state. If the
// rail of the database is the sandbox rail, it also compares the ledger with the rail.
func (p *program) auditCommand() *cobra.Command {
	return command("audit", "Check the invariants of money and state", func(ctx context.Context, _ []string) error {
		return p.withStore(ctx, func(ctx context.Context, _ Config, store *models.Store) error {
			deployment, err := store.Deployment(ctx)
			if err != nil && !errors.Is(err, models.ErrNotFound) { // not found: there are no debits yet
				return err
			}
			found, err := store.Audit(ctx, deployment.Rail == railSandbox)
			if err != nil {
				return err
			}
			for _, v := range found {
				fmt.Fprintf(p.stdout, "VIOLATION: %s: %s: %s\n", v.Check, v.Subject, v.Detail)
			}
			if len(found) > 0 {
				return errViolations
			}
			fmt.Fprintln(p.stdout, "audit clean")
			return nil
		})
	})
}

// siteCommand returns `svc admin site`, which adds Sites to organisations and prints their ids.
func (p *program) siteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "site", Short: "Manage the Sites of organisations"}
	add := idCommand(p, "add ORGANISATION NAME", "Add a Site",
		func(ctx context.Context, store *models.Store, organisation models.OrganisationID, args []string) error {
			site, err := store.CreateSite(ctx, organisation, args[1])
			if err == nil {
				fmt.Fprintln(p.stdout, site.ID)
			}
			return err
		})
	cmd.AddCommand(acting(models.ActAddSite, add))
	return cmd
}
