package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// secretCommand returns `svc admin client secret`, which adds, lists and removes the secrets of a
// client. Fingerprints name the secrets.
func (p *program) secretCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "secret", Short: "Manage a client's secrets, of which there are at most two"}
	cmd.AddCommand(
		acting(models.ActAddClientSecret, p.ofClient("add",
			"Add a secret and print it; it is never shown again",
			func(store *models.Store, ctx context.Context, id models.ClientID) error {
				secret, err := store.AddClientSecret(ctx, id)
				if err == nil {
					fmt.Fprintln(p.stdout, secret)
				}
				return err
			})),
		p.ofClient("list", "List the secrets' fingerprints",
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
	remove := idCommand(p, "remove CLIENT FINGERPRINT",
		"Remove a secret; its tokens stop working "+withinRevocationDelay,
		func(ctx context.Context, store *models.Store, id models.ClientID, args []string) error {
			return store.RemoveClientSecret(ctx, id, args[1])
		})
	cmd.AddCommand(acting(models.ActRemoveClientSecret, remove))
	return cmd
}
