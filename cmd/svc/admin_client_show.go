package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/auth"
	"partnerbilling/models"
)

// listClientsCommand returns `svc admin client list`, which lists the clients of one organisation,
// of the customer app, or of all owners.
func (p *program) listClientsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [ORGANISATION|customer-app]", Short: "List clients, with the last use of any of their credentials",
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		owners := make([]models.OrganisationID, len(args))
		for i, text := range args {
			var err error
			if owners[i], err = parseOwner(text); err != nil {
				return err
			}
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) (err error) {
			if len(owners) == 0 {
				if owners, err = allOwners(ctx, store); err != nil {
					return err
				}
			}
			return p.listClients(ctx, store, owners)
		})
	}
	return cmd
}

// allOwners returns the ids of all organisations, and the zero id for the customer app.
func allOwners(ctx context.Context, store *models.Store) ([]models.OrganisationID, error) {
	organisations, err := store.Organisations(ctx)
	owners := make([]models.OrganisationID, len(organisations)+1)
	for i := range organisations {
		owners[i] = organisations[i].ID
	}
	return owners, err
}

// listClients prints a table of the clients of some owners. The zero owner is the customer app.
func (p *program) listClients(ctx context.Context, store *models.Store, owners []models.OrganisationID) error {
	var rows [][]any
	for _, owner := range owners {
		clients, err := store.Clients(ctx, owner)
		if err != nil {
			return err
		}
		for i := range clients {
			c := &clients[i]
			uses, err := store.CredentialUses(ctx, c.ID)
			if err != nil {
				return err
			}
			last := slices.MaxFunc(append(slices.Collect(maps.Values(uses)), time.Time{}), time.Time.Compare)
			rows = append(rows, []any{c.ID, ownerName(owner), clientState(c), lastUse(last), c.Name})
		}
	}
	return p.table("CLIENT\tORGANISATION\tSTATE\tLAST USED\tNAME", func(row func(...any)) {
		for _, cells := range rows {
			row(cells...)
		}
	})
}

// clientState returns "enabled" or "disabled".
func clientState(c *models.Client) string {
	if c.Disabled() {
		return "disabled"
	}
	return "enabled"
}

// lastUse formats the time at which a credential was last used: in UTC, to the minute. The zero
// time means never.
func lastUse(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.UTC().Format("2006-01-02 15:04Z")
}

// showClient implements `svc admin client show`. It prints a client, and a table of its secrets and
// public keys.
func (p *program) showClient(ctx context.Context, store *models.Store, id models.ClientID, _ []string) error {
	client, err := store.Client(ctx, id)
	if err != nil {
		return err
	}
	secrets, err := store.ClientSecrets(ctx, id)
	if err != nil {
		return err
	}
	keys, err := auth.KeyFingerprints(client.JWKS)
	if err != nil {
		return err
	}
	uses, err := store.CredentialUses(ctx, id)
	if err != nil {
		return err
	}
	addresses := anyAddress
	if len(client.AllowedAddresses) > 0 {
		addresses = strings.Trim(fmt.Sprint(client.AllowedAddresses), "[]")
	}
	fmt.Fprintf(p.stdout, "client        %s\norganisation  %s\nname          %s\nstate         %s\ncreated       %s\n"+
		"scopes        %s\naddresses     %s\n\n", client.ID, ownerName(client.OrganisationID), client.Name,
		clientState(&client), formatTime(client.CreatedAt), strings.Trim(fmt.Sprint(client.Scopes), "[]"),
		addresses)
	return p.table("CREDENTIAL\tKIND\tCREATED\tLAST USED", func(row func(...any)) {
		for _, s := range secrets {
			row(s.Fingerprint, "secret", formatTime(s.CreatedAt), lastUse(uses[s.Fingerprint]))
		}
		for _, fingerprint := range keys {
			row(fingerprint, "key", "", lastUse(uses[fingerprint]))
		}
	})
}
