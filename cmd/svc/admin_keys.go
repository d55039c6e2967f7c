package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"partnerbilling/models"
	"partnerbilling/models/seal"
)

// keysCommand returns `svc admin keys`, which manages the service's own keys: those of access
// tokens, sign-up links and sealed texts. It also encrypts stored secrets under a new master key.
func (p *program) keysCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Manage the service's own keys"}
	rotate := &cobra.Command{
		Use:   "rotate PURPOSE",
		Short: "Create the next accessToken, signupLink or sealedText key",
		Args:  cobra.ExactArgs(1),
	}
	rotate.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(models.KeyPurposes, models.KeyPurpose(args[0])) {
			return fmt.Errorf("there is no key purpose %q; the purposes are %q", args[0], models.KeyPurposes)
		}
		return p.withKeyring(cmd.Context(), func(ctx context.Context, store *models.Store, ring *seal.Keyring) error {
			id, err := store.RotateKey(ctx, ring, models.KeyPurpose(args[0]))
			if err == nil {
				fmt.Fprintf(p.stdout, "%s, active within %s\n", id, models.KeyActivationDelay)
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
				if err != nil {
					return err
				}
				parties, err := store.ResealParties(ctx, ring)
				if err == nil {
					fmt.Fprintf(p.stdout, "%d resealed\n", keys+secrets+parties)
				}
				return err
			})
		})
	cmd.AddCommand(acting(models.ActRotateKey, rotate), acting(models.ActReseal, reseal), p.listKeysCommand(),
		acting(models.ActRetireKey, p.retireKeyCommand()))
	return cmd
}

// listKeysCommand returns `svc admin keys list`, which lists the keys that have not retired, also
// those that are not active yet.
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

// retireKeyCommand returns `svc admin keys retire`, for a leaked key.
func (p *program) retireKeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retire KEY",
		Short: "Retire a leaked key at once; what it signed or sealed becomes invalid",
		Args:  cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var id models.KeyID
		if err := parseID(&id, args[0]); err != nil {
			return err
		}
		return p.withKeyring(cmd.Context(), func(ctx context.Context, store *models.Store, ring *seal.Keyring) error {
			return store.RetireKey(ctx, ring, id)
		})
	}
	return cmd
}
