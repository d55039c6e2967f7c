package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/api/web"
	"partnerbilling/models"
	"partnerbilling/models/seal"
)

func (p *program) listKeysCommand() *cobra.Command {
	return command("list", "List live keys", func(ctx context.Context, _ []string) error {
		return p.withKeyring(ctx, func(ctx context.Context, store *models.Store, ring *seal.Keyring) error {
			keys := models.NewKeys(store, ring)
			var err error
			printed := p.table("KEY\tPURPOSE\tACTIVE\tRETIRES", func(row func(...any)) {
				for _, purpose := range models.KeyPurposes {
					var live []models.Key
					if live, err = keys.Live(ctx, purpose); err != nil {
						return
					}
					for _, key := range live {
						row(key.ID, key.Purpose, formatTime(key.ActiveAt), formatTime(key.RetiredAt))
					}
				}
			})
			return errors.Join(err, printed)
		})
	})
}

func (p *program) retireKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retire KEY",
		Short: "Retire a leaked key at once; tokens and links that it signed become invalid",
		Args:  cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var id models.KeyID
		if err := id.UnmarshalText([]byte(args[0])); err != nil {
			return err
		}
		return p.withKeyring(cmd.Context(), func(ctx context.Context, store *models.Store, ring *seal.Keyring) error {
			return store.RetireKey(ctx, ring, id)
		})
	}
	return cmd
}

// alertCommand returns a command that changes an open alert.
func (p *program) alertCommand(
	use, short string, change func(*models.Store, context.Context, string, string) error,
) *cobra.Command {
	return p.storeCommand(use+" KIND SUBJECT", short,
		func(ctx context.Context, store *models.Store, args []string) error {
			return explainAlert(change(store, ctx, args[0], args[1]))
		})
}

func (p *program) closeAlertCommand() *cobra.Command {
	var organisation string
	cmd := p.alertCommand("close", "Close an alert after it has been dealt with", (*models.Store).CloseAlert)
	one := cmd.RunE
	cmd.Use = "close KIND {SUBJECT | --organisation ORGANISATION}"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if organisation != "" {
			return cobra.ExactArgs(1)(cmd, args)
		}
		return cobra.ExactArgs(2)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if organisation == "" {
			return one(cmd, args)
		}
		var id models.OrganisationID
		if err := id.UnmarshalText([]byte(organisation)); err != nil {
			return fmt.Errorf("--organisation: %w", err)
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			n, err := store.CloseAlertsOf(ctx, args[0], id)
			if err == nil {
				fmt.Fprintln(p.stdout, web.Plural(n, "alert", "alerts"), "closed")
			}
			return explainAlert(err)
		})
	}
	cmd.Flags().StringVar(&organisation, "organisation", "",
		"close all alerts of the kind that concern this organisation")
	return cmd
}

// explainAlert words the errors of alerts for operators.
func explainAlert(err error) error {
	if errors.Is(err, models.ErrNotFound) {
		return explain(err, "no such alert is open; svc admin alerts lists the open ones")
	}
	return err
}

// formatTime formats a time in UTC for people. It returns "" for 0.
func formatTime(at models.Millis) string {
	if at == 0 {
		return ""
	}
	return at.Time().Format("2006-01-02 15:04:05Z")
}
