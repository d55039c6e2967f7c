package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/jobs"
	"partnerbilling/models"
)

// debitCommand returns `svc admin debit`. It helps operators to clear up single debits: it prints
// rail keys, asks the rail, and records an operator's decision about an unknown outcome.
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

// lookUpCommand returns `svc admin debit lookup`, which asks the rail about a rail key. It prints
// the answer beside the row or payment with this key and its ledger entry.
func (p *program) lookUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "lookup RAIL_KEY", Short: "Ask the rail about a debit, and compare it with the ledger",
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.withStore(cmd.Context(), func(ctx context.Context, cfg Config, store *models.Store) error {
			payments, end, err := cfg.openAdminRail(store)
			if err != nil {
				return err
			}
			look, err := jobs.LookupDebit(ctx, store, payments, args[0])
			if err = errors.Join(err, end()); err == nil {
				p.printLookup(look)
			}
			return err
		})
	}
	return cmd
}

// printLookup prints the rail's answer, what the service knows, and the ledger entry, a line each.
// Amounts are in minor units.
func (p *program) printLookup(look jobs.DebitLookup) {
	answer := look.Answer
	fmt.Fprintf(p.stdout, "rail: %s %s%s", answer.Status, answer.Reason, printable(answer.Detail))
	if answer.Held.AgreementID != "" {
		fmt.Fprintf(p.stdout, " %d %s", answer.Held.Amount, answer.Held.Currency)
	}
	fmt.Fprintln(p.stdout)
	if !look.Known.IsKnown() {
		fmt.Fprintln(p.stdout, "service: no row and no payment has this key")
		return
	}
	outcome := look.Known.Subject.Outcome
	if look.Known.Subject.Open {
		outcome = "open " + outcome
	}
	fmt.Fprintf(p.stdout, "service: %s: %s\n", look.Known.Subject.Subject(), outcome)
	if look.Known.RecordedAt != 0 {
		fmt.Fprintf(p.stdout, "ledger: %d at %s\n", look.Known.Amount, formatTime(look.Known.RecordedAt))
	}
}

// decisionFlags adds the flags --debited and --not-debited, and requires exactly one of them. Once
// the flags are parsed, the returned function returns the decision.
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
		return "" // --debited=false is no decision, and the Store refuses it
	}
}

// decideRowCommand returns `svc admin debit decide`, which corrects a row that was settled as
// unconfirmed.
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

// decidePaymentCommand returns `svc admin debit decide-payment`, which ends a pending payment.
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
