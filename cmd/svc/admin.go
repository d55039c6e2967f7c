package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/migrations"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
	"partnerbilling/models/seal"
)

// storeFunc is the part of a command that uses the configuration and the database.
type storeFunc func(ctx context.Context, cfg Config, store *models.Store) error

// withStore opens the configured database for do. It refuses the database of another deployment.
func (p *program) withStore(ctx context.Context, do storeFunc) error {
	return p.withStoreTimeout(ctx, 0, do)
}

// withStoreTimeout is withStore with a timeout for each statement. 0 means the service's default.
func (p *program) withStoreTimeout(ctx context.Context, statement time.Duration, do storeFunc) error {
	return p.withAnyRail(ctx, statement, func(ctx context.Context, cfg Config, store *models.Store) error {
		if err := checkDeployment(ctx, store, cfg.deployment(false)); err != nil {
			return err
		}
		return do(ctx, cfg, store)
	})
}

// withAnyRail is withStoreTimeout for a command that replaces the rail: it checks only the
// environment.
func (p *program) withAnyRail(ctx context.Context, statement time.Duration, do storeFunc) error {
	cfg, err := parseConfig(p.environ)
	if err != nil {
		return err
	}
	if cfg.DatabaseURL == "" {
		return errors.New("SVC_DATABASE_URL must be set")
	}
	store, err := models.Open(postgres.Config{
		DSN: cfg.DatabaseURL, MaxConns: 4, StatementTimeout: statement, ApplicationName: "svc admin",
	})
	if err != nil {
		return fmt.Errorf("SVC_DATABASE_URL: %w", err)
	}
	err = checkDeployment(ctx, store, models.Deployment{Environment: models.Environment(cfg.Env)})
	if err == nil {
		err = do(ctx, cfg, store)
	}
	return errors.Join(err, store.Close())
}

func (p *program) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Migrate the database schema"}
	migrate := func(use, short string, do func(context.Context, *models.Store) (int, error), done string) {
		cmd.AddCommand(command(use, short, func(ctx context.Context, _ []string) error {
			return p.withStore(ctx, func(ctx context.Context, _ Config, store *models.Store) error {
				n, err := do(ctx, store)
				if err != nil {
					return err
				}
				fmt.Fprintf(p.stdout, done+"\n", n)
				return nil
			})
		}))
	}
	migrate("up", "Apply all pending migrations", func(ctx context.Context, store *models.Store) (int, error) {
		return migrations.Up(ctx, store.DB())
	}, "%d migrations applied")
	migrate("status", "Count pending migrations", func(ctx context.Context, store *models.Store) (int, error) {
		return migrations.Pending(ctx, store.DB())
	}, "%d migrations are pending")
	return cmd
}

func (p *program) adminCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "admin", Short: "Operate the service"}
	cmd.AddCommand(
		p.auditCommand(), p.recountCommand(), p.alertsCommand(), p.organisationCommand(), p.siteCommand(),
		p.clientCommand(), p.keysCommand(), p.restoredCommand(), p.debitCommand(), p.railAdminCommand(),
		command("master-key", "Print a new master key for SVC_MASTER_KEY", func(context.Context, []string) error {
			fmt.Fprintln(p.stdout, seal.GenerateMasterKey())
			return nil
		}),
	)
	return cmd
}

// auditTimeout bounds each check of the audit, which reads whole tables.
const auditTimeout = 6 * time.Hour

func (p *program) auditCommand() *cobra.Command {
	return command("audit", "Check the invariants of money and state", func(ctx context.Context, _ []string) error {
		return p.withStoreTimeout(ctx, auditTimeout, func(ctx context.Context, cfg Config, store *models.Store) error {
			found, err := store.Audit(ctx, cfg.Env != production && cfg.Rail != "http")
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

func (p *program) alertsCommand() *cobra.Command {
	cmd := command("alerts", "List open alerts", func(ctx context.Context, _ []string) error {
		return p.withStore(ctx, func(ctx context.Context, _ Config, store *models.Store) error {
			alerts, err := store.OpenAlerts(ctx, 1000)
			if err != nil {
				return err
			}
			return p.table("RAISED\tKIND\tSUBJECT\tDETAIL\tTRACE", func(row func(...any)) {
				for _, a := range alerts {
					row(formatTime(a.RaisedAt), a.Kind, a.Subject, a.Detail, a.TraceID)
				}
			})
		})
	})
	cmd.AddCommand(p.closeAlertCommand())
	return cmd
}

// table prints rows in aligned columns under a heading.
func (p *program) table(heading string, fill func(row func(...any))) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	fill(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = fmt.Sprint(c)
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	})
	return w.Flush()
}

func (p *program) organisationCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "organisation", Short: "Manage partner organisations"}
	add := &cobra.Command{Use: "add NAME", Short: "Add an organisation", Args: cobra.ExactArgs(1)}
	add.RunE = func(cmd *cobra.Command, args []string) error {
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			organisation, err := store.CreateOrganisation(ctx, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(p.stdout, organisation.ID)
			return nil
		})
	}
	list := command("list", "List the organisations and their Sites", func(ctx context.Context, _ []string) error {
		return p.withStore(ctx, p.listOrganisations)
	})
	cmd.AddCommand(add, list)
	return cmd
}

func (p *program) listOrganisations(ctx context.Context, _ Config, store *models.Store) error {
	organisations, err := store.Organisations(ctx)
	if err != nil {
		return err
	}
	printed := p.table("ORGANISATION\tSITE\tNAME", func(row func(...any)) {
		for _, o := range organisations {
			row(o.ID, "", o.Name)
			var sites []models.Site
			if sites, err = store.Sites(ctx, o.ID); err != nil {
				return
			}
			for _, s := range sites {
				row("", s.ID, s.Name)
			}
		}
	})
	return errors.Join(err, printed)
}

func (p *program) siteCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "site", Short: "Manage the Sites of organisations"}
	add := &cobra.Command{Use: "add ORGANISATION NAME", Short: "Add a Site", Args: cobra.ExactArgs(2)}
	add.RunE = func(cmd *cobra.Command, args []string) error {
		var organisation models.OrganisationID
		if err := organisation.UnmarshalText([]byte(args[0])); err != nil {
			return err
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			site, err := store.CreateSite(ctx, organisation, args[1])
			if err != nil {
				return err
			}
			fmt.Fprintln(p.stdout, site.ID)
			return nil
		})
	}
	cmd.AddCommand(add)
	return cmd
}

func (p *program) clientCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "client", Short: "Manage API clients"}
	var name string
	var scopes []string
	add := &cobra.Command{
		Use:   "add ORGANISATION|customer-app",
		Short: "Add a client and print its id and secret; the secret is never shown again", Args: cobra.ExactArgs(1),
	}
	add.Flags().StringVar(&name, "name", "client", "name of the client")
	add.Flags().StringSliceVar(&scopes, "scopes", nil, "scopes of the client (default all allowed scopes)")
	add.RunE = func(cmd *cobra.Command, args []string) error {
		var organisation models.OrganisationID
		granted := models.CustomerAppScopes
		if args[0] != "customer-app" {
			if err := organisation.UnmarshalText([]byte(args[0])); err != nil {
				return err
			}
			granted = models.PartnerScopes
		}
		if len(scopes) > 0 {
			granted = nil
			for _, s := range scopes {
				granted = append(granted, models.Scope(s))
			}
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			id, secret, err := newClient(ctx, store, organisation, name, granted)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.stdout, "%s %s\n", id, secret)
			return nil
		})
	}
	cmd.AddCommand(add,
		p.changeClient("disable CLIENT", "Disable a client; its tokens stop working within a minute",
			(*models.Store).DisableClient),
		p.changeClient("enable CLIENT", "Enable a disabled client", (*models.Store).EnableClient),
		p.secretCommand(), p.clientKeysCommand())
	return cmd
}

// newClient creates a client with a secret.
func newClient(
	ctx context.Context, store *models.Store, organisation models.OrganisationID, name string, scopes []models.Scope,
) (models.ClientID, string, error) {
	client, err := store.CreateClient(ctx, organisation, name, scopes)
	if err != nil {
		return models.ClientID{}, "", err
	}
	secret, err := store.AddClientSecret(ctx, client.ID)
	return client.ID, secret, err
}

func (p *program) changeClient(
	use, short string, do func(*models.Store, context.Context, models.ClientID) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var id models.ClientID
		if err := id.UnmarshalText([]byte(args[0])); err != nil {
			return err
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			return do(store, ctx, id)
		})
	}
	return cmd
}

func (p *program) secretCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "secret", Short: "Manage a client's secrets, of which there are at most two"}
	cmd.AddCommand(
		p.changeClient("add CLIENT", "Add a secret and print it; it is never shown again",
			func(store *models.Store, ctx context.Context, id models.ClientID) error {
				secret, err := store.AddClientSecret(ctx, id)
				if err == nil {
					fmt.Fprintln(p.stdout, secret)
				}
				return err
			}),
		p.changeClient("list CLIENT", "List the secrets' fingerprints",
			func(store *models.Store, ctx context.Context, id models.ClientID) error {
				secrets, err := store.ClientSecrets(ctx, id)
				if err != nil {
					return err
				}
				return p.table("FINGERPRINT\tCREATED", func(row func(...any)) {
					for _, s := range secrets {
						row(s.Fingerprint, formatTime(s.CreatedAt))
					}
				})
			}))
	remove := &cobra.Command{Use: "remove CLIENT FINGERPRINT", Short: "Remove a secret", Args: cobra.ExactArgs(2)}
	remove.RunE = func(cmd *cobra.Command, args []string) error {
		var id models.ClientID
		if err := id.UnmarshalText([]byte(args[0])); err != nil {
			return err
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			return store.RemoveClientSecret(ctx, id, args[1])
		})
	}
	cmd.AddCommand(remove)
	return cmd
}

func (p *program) keysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Manage the service's own keys"}
	rotate := &cobra.Command{
		Use:   "rotate PURPOSE",
		Short: "Create the next accessToken, signupLink or paginationLink key",
		Args:  cobra.ExactArgs(1),
	}
	rotate.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(models.KeyPurposes, models.KeyPurpose(args[0])) {
			return fmt.Errorf("there is no key purpose %q; the purposes are %q", args[0], models.KeyPurposes)
		}
		return p.withKeyring(cmd.Context(), func(ctx context.Context, store *models.Store, ring *seal.Keyring) error {
			id, err := store.RotateKey(ctx, ring, models.KeyPurpose(args[0]))
			if err == nil {
				fmt.Fprintf(p.stdout, "%s, active in %s\n", id, models.KeyActivationDelay)
			}
			return err
		})
	}
	reseal := command("reseal",
		"Encrypt all stored secrets under the first master key, so that older keys can be removed",
		func(ctx context.Context, _ []string) error {
			return p.withKeyring(ctx, func(ctx context.Context, store *models.Store, ring *seal.Keyring) error {
				keys, err := store.ResealKeys(ctx, ring)
				if err != nil {
					return err
				}
				secrets, err := store.ResealWebhookSecrets(ctx, ring)
				if err == nil {
					fmt.Fprintf(p.stdout, "%d resealed\n", keys+secrets)
				}
				return err
			})
		})
	cmd.AddCommand(rotate, reseal, p.listKeysCommand(), p.retireKeyCommand())
	return cmd
}

func (p *program) withKeyring(
	ctx context.Context, do func(context.Context, *models.Store, *seal.Keyring) error,
) error {
	return p.withStore(ctx, func(ctx context.Context, cfg Config, store *models.Store) error {
		ring, err := cfg.keyring()
		if err != nil {
			return err
		}
		return do(ctx, store, ring)
	})
}
