package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func (p *program) restoredCommand() *cobra.Command {
	var resume, cancel bool
	cmd := &cobra.Command{
		Use:   "restored",
		Short: "Report that the database was restored, and decide about restored work",
		Long: `Run it after a restore from a backup, a dump or a storage snapshot, before any worker starts.
It holds the restored rows and payments, because acknowledged cancellations and revocations may
be lost. Ask the partners, then decide:

  --resume  look up each debit on the rail, and debit those that the rail does not know
  --cancel  cancel each debit on the rail; rows already debited succeed, the others are cancelled`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&resume, "resume", false, "resume the held work")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel the held work on the rail")
	cmd.MarkFlagsMutuallyExclusive("resume", "cancel")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			decide := store.BeginEpoch
			switch {
			case resume:
				decide = store.ResumeRestored
			case cancel:
				decide = store.CancelRestored
			}
			epoch, err := decide(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.stdout, "epoch %d, %d open batches and payment intents of earlier epochs\n",
				epoch.Number, epoch.InDoubt)
			if epoch.HeldBefore > 0 {
				fmt.Fprintln(p.stdout, "They are held. Decide with --resume or --cancel.")
			}
			return nil
		})
	}
	return acting(models.ActDecideRestored, cmd)
}

func (p *program) debitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debit",
		Short: "Print rail keys of debits, and decide debits whose outcome the rail cannot tell",
	}
	key := &cobra.Command{
		Use: "key SITE BATCH_REFERENCE ROW_REFERENCE", Short: "Print the rail key of a row", Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withSite(cmd.Context(), args,
				func(ctx context.Context, store *models.Store, site models.SiteID) error {
					key, err := store.RowRailKey(ctx, site, args[1], args[2])
					if err == nil {
						fmt.Fprintln(p.stdout, key)
					}
					return err
				})
		},
	}
	cmd.AddCommand(key, acting(models.ActLookUpDebit, p.lookUpCommand()),
		acting(models.ActDecideRow, p.decideRowCommand()),
		acting(models.ActDecidePayment, p.decidePaymentCommand()))
	return cmd
}

// withSite parses a Site's id, which is the first argument, opens the database and calls do.
func (p *program) withSite(
	ctx context.Context, args []string, do func(context.Context, *models.Store, models.SiteID) error,
) error {
	var site models.SiteID
	if err := site.UnmarshalText([]byte(args[0])); err != nil {
		return fmt.Errorf("%q is not a siteId", args[0])
	}
	return p.withStore(ctx, func(ctx context.Context, _ Config, store *models.Store) error {
		return do(ctx, store, site)
	})
}

// decisionFlags adds the two flags for a decision, of which exactly one is required. The returned
// function returns the decision once the flags are parsed.
func decisionFlags(cmd *cobra.Command) func() models.DebitDecision {
	var debited, notDebited bool
	cmd.Flags().BoolVar(&debited, "debited", false, "the account was debited once")
	cmd.Flags().BoolVar(&notDebited, "not-debited", false,
		"nothing was debited, and nothing will be debited under the key")
	cmd.MarkFlagsMutuallyExclusive("debited", "not-debited")
	cmd.MarkFlagsOneRequired("debited", "not-debited")
	return func() models.DebitDecision { return models.DebitDecision(debited) }
}

func (p *program) decideRowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "decide SITE BATCH_REFERENCE ROW_REFERENCE", Args: cobra.ExactArgs(3),
		Short: "Correct an unconfirmed row according to the gateway's records",
	}
	decision := decisionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		decide := func(ctx context.Context, store *models.Store, site models.SiteID) error {
			outcome, err := store.DecideRow(ctx, site, args[1], args[2], decision())
			if errors.Is(err, models.ErrNotUndecided) {
				return explain(err, "the row is not unconfirmed, or it has already been corrected")
			}
			if err == nil {
				fmt.Fprintln(p.stdout, "corrected to", outcome)
			}
			return err
		}
		return p.withSite(cmd.Context(), args, decide)
	}
	return cmd
}

func (p *program) decidePaymentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "decide-payment PAYMENT_INTENT", Args: cobra.ExactArgs(1),
		Short: "End a pending payment according to the gateway's records",
	}
	decision := decisionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var id models.PaymentIntentID
		if err := id.UnmarshalText([]byte(args[0])); err != nil {
			return fmt.Errorf("%q is not a paymentIntentId", args[0])
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			status, _, err := store.DecidePayment(ctx, id, decision())
			if errors.Is(err, models.ErrNotUndecided) {
				return explain(err, "the payment is not pending, or a worker is asking the rail about it")
			}
			if err == nil {
				fmt.Fprintln(p.stdout, "ended as", status)
			}
			return err
		})
	}
	return cmd
}
