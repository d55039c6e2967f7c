package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"partnerbilling/api/auth"
	"partnerbilling/api/peer"
	"partnerbilling/models"
)

// withinRevocationDelay says in the help when a change of a client takes effect: "within 30
// seconds".
var withinRevocationDelay = fmt.Sprintf("within %.0f seconds", auth.RevocationDelay.Seconds())

// clientCommand returns `svc admin client`, which manages the API clients of organisations and of
// the customer app.
func (p *program) clientCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "client", Short: "Manage API clients"}
	cmd.AddCommand(acting(models.ActAddClient, p.addClientCommand()), p.listClientsCommand(),
		idCommand(p, "show CLIENT", "Show a client, with the last use of each credential", p.showClient),
		acting(models.ActSetClientScopes, idCommand(p, "scopes CLIENT SCOPE...",
			"Replace a client's scopes; its tokens lose the others "+withinRevocationDelay, setClientScopes)),
		acting(models.ActSetClientAddresses, p.allowAddressesCommand()),
		acting(models.ActDisableClient, p.ofClient("disable",
			"Disable a client; its tokens stop working "+withinRevocationDelay, (*models.Store).DisableClient)),
		acting(models.ActEnableClient, p.ofClient("enable", "Enable a disabled client",
			(*models.Store).EnableClient)),
		p.secretCommand(), p.clientKeysCommand())
	return cmd
}

// addClientCommand returns `svc admin client add`, which prints the id and the secret of a new
// client.
func (p *program) addClientCommand() *cobra.Command {
	var name string
	var scopes []string
	add := &cobra.Command{
		Use:   "add ORGANISATION|customer-app",
		Short: "Add a client and print its id and secret; the secret is never shown again", Args: cobra.ExactArgs(1),
	}
	add.Flags().StringVar(&name, "name", "client", "name of the client")
	add.Flags().StringSliceVar(&scopes, "scopes", nil, "scopes of the client (default all allowed scopes)")
	add.RunE = func(cmd *cobra.Command, args []string) error {
		organisation, err := parseOwner(args[0])
		if err != nil {
			return err
		}
		granted := models.PartnerScopes
		if organisation.IsZero() {
			granted = models.CustomerAppScopes
		}
		if len(scopes) > 0 {
			granted = scopesOf(scopes)
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			client, secret, err := store.CreateClientWithSecret(ctx, organisation, name, granted)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.stdout, "%s %s\n", client.ID, secret)
			return nil
		})
	}
	return add
}

// customerApp is the argument for the backend of the customer app. Its clients belong to no
// organisation.
const customerApp = "customer-app"

// parseOwner parses the owner of clients: an organisation's id, or customerApp. It returns the zero
// id for the customer app.
func parseOwner(text string) (organisation models.OrganisationID, err error) {
	if text != customerApp {
		err = parseID(&organisation, text)
	}
	return organisation, err
}

// ownerName returns the owner of clients as parseOwner reads it.
func ownerName(organisation models.OrganisationID) string {
	if organisation.IsZero() {
		return customerApp
	}
	return organisation.String()
}

// scopesOf converts arguments to scopes. The Store refuses unknown scopes.
func scopesOf(texts []string) []models.Scope {
	scopes := make([]models.Scope, len(texts))
	for i, text := range texts {
		scopes[i] = models.Scope(text)
	}
	return scopes
}

// ofClient returns a command with the id of a client as its only argument, which it passes to do.
func (p *program) ofClient(
	use, short string, do func(*models.Store, context.Context, models.ClientID) error,
) *cobra.Command {
	return idCommand(p, use+" CLIENT", short,
		func(ctx context.Context, store *models.Store, id models.ClientID, _ []string) error {
			return do(store, ctx, id)
		})
}

// setClientScopes replaces the scopes of a client by args[1:].
func setClientScopes(ctx context.Context, store *models.Store, id models.ClientID, args []string) error {
	return store.SetClientScopes(ctx, id, scopesOf(args[1:]))
}

// anyAddress stands for all addresses, in arguments and in output.
const anyAddress = "any"

// allowAddressesCommand returns `svc admin client allow-addresses`, which replaces the addresses
// from which a client may call.
func (p *program) allowAddressesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "allow-addresses CLIENT any|CIDR...",
		Short: "Replace the addresses from which a client may call; others are refused " + withinRevocationDelay,
		Args:  cobra.MinimumNArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var prefixes []netip.Prefix
		if len(args) != 2 || args[1] != anyAddress {
			var err error
			if prefixes, err = parsePrefixes(args[1:]); err != nil {
				return err
			}
		}
		return withID(cmd.Context(), p, args[0],
			func(ctx context.Context, store *models.Store, id models.ClientID) error {
				return store.SetClientAddresses(ctx, id, prefixes)
			})
	}
	return cmd
}

// parsePrefixes parses CIDR prefixes and single addresses.
func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		prefix, err := peer.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR prefix, such as 192.0.2.0/24", text)
		}
		prefixes[i] = prefix
	}
	return prefixes, nil
}
