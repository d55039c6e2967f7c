package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
	"partnerbilling/models/seal"
)

// customerCommand returns `svc admin customer`, which exports or erases the personal data of a
// customer.
func (p *program) customerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "customer", Short: "Export or erase what is stored about a customer"}
	cmd.AddCommand(
		p.oneCustomer("export", "Print everything stored about the customer of a reference, as JSON", p.exportCustomer),
		acting(models.ActEraseCustomer, p.oneCustomer("erase",
			"Revoke a customer's link, and remove customer and agreement from links and payments", p.eraseCustomer)))
	return cmd
}

// oneCustomer returns a command with a Site and a customerReference as arguments. It calls do with
// both, and with a store that has the master keys.
func (p *program) oneCustomer(
	use, short string, do func(ctx context.Context, store *models.Store, site models.SiteID, reference string) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use + " SITE CUSTOMER_REFERENCE", Short: short, Args: cobra.ExactArgs(2)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var site models.SiteID
		if err := parseID(&site, args[0]); err != nil {
			return err
		}
		return p.withKeyring(cmd.Context(), func(ctx context.Context, store *models.Store, _ *seal.Keyring) error {
			return do(ctx, store, site, args[1])
		})
	}
	return cmd
}

// exportCustomer prints a [models.CustomerData] as JSON.
func (p *program) exportCustomer(ctx context.Context, store *models.Store, site models.SiteID, reference string) error {
	data, err := store.ExportCustomer(ctx, site, reference)
	if err != nil {
		return err
	}
	return p.printJSON(data)
}

// eraseCustomer erases a customer's data, and prints the numbers of changed links and payments.
func (p *program) eraseCustomer(ctx context.Context, store *models.Store, site models.SiteID, reference string) error {
	links, payments, err := store.EraseCustomer(ctx, site, reference)
	if errors.Is(err, models.ErrCustomerInUse) {
		return explain(err, "debits or payments of the customer are open or in doubt, and need the agreement: "+
			"repeat the command when they are settled")
	}
	if err == nil {
		fmt.Fprintf(p.stdout, "erased from %d links and %d payments\n", links, payments)
	}
	return err
}
