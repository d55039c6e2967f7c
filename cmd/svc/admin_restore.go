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
	key := idCommand(p, "key SITE BATCH_REFERENCE ROW_REFERENCE", "Print the rail key of a row",
		func(ctx context.Context, store *models.Store, site models.SiteID, args []string) error {
			key, err := store.RowRailKey(ctx, site, args[1], args[2])
			if err == nil {
				fmt.Fprintln(p.stdout, key)
			}
			return err
		})
	cmd.AddCommand(key, acting(models.ActLookUpDebit, p.lookUpCommand()),
		acting(models.ActDecideRow, p.decideRowCommand()),
		acting(models.ActDecidePayment, p.decidePaymentCommand()))
	return cmd
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
	return func() models.DebitDecision {
		switch {
		case debited:
			return models.DecidedDebited
		case notDebited:
			return models.DecidedNotDebited
		}
		return "" // as for --debited=false, which is no decision
	}
}

func (p *program) decideRowCommand() *cobra.Command {
	var decision func() models.DebitDecision
	cmd := idCommand(p, "decide SITE BATCH_REFERENCE ROW_REFERENCE",
		"Correct an unconfirmed row according to the gateway's records",
		func(ctx context.Context, store *models.Store, site models.SiteID, args []string) error {
			outcome, err := store.DecideRow(ctx, site, args[1], args[2], decision())
			if errors.Is(err, models.ErrNoDecisionNeeded) {
				return explain(err, "the row is not unconfirmed, or it has already been corrected")
			}
			if err == nil {
				fmt.Fprintln(p.stdout, "corrected to", outcome)
			}
			return err
		})
	decision = decisionFlags(cmd)
	return cmd
}

func (p *program) decidePaymentCommand() *cobra.Command {
	var decision func() models.DebitDecision
	cmd := idCommand(p, "decide-payment PAYMENT_INTENT", "End a pending payment according to the gateway's records",
		func(ctx context.Context, store *models.Store, id models.PaymentIntentID, _ []string) error {
			status, _, err := store.DecidePayment(ctx, id, decision())
			if errors.Is(err, models.ErrNoDecisionNeeded) {
				return explain(err, "the payment is not pending, or a worker is asking the rail about it")
			}
			if err == nil {
				fmt.Fprintln(p.stdout, "ended as", status)
			}
			return err
		})
	decision = decisionFlags(cmd)
	return cmd
}
