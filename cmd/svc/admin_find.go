package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/jobs"
	"partnerbilling/models"
)

func (p *program) findCommand() *cobra.Command {
	return p.storeCommand("find TEXT", "Find what an id, a trace id, a rail key, a reference or a part of a name names",
		func(ctx context.Context, store *models.Store, args []string) error {
			hits, err := store.Search(ctx, args[0])
			if err != nil {
				return err
			}
			return p.table("KIND\tID\tDETAIL\tCREATED\tORGANISATION\tSITE", func(row func(...any)) {
				for _, h := range hits {
					row(h.Kind, printable(h.ID), printable(h.Detail), formatTime(h.At),
						orEmpty(h.OrganisationID), orEmpty(h.SiteID))
				}
			})
		})
}

func (p *program) storyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "story", Short: "Print everything about a batch or a payment, with rail keys and events, as JSON",
	}
	batch := idCommand(p, "batch SITE BATCH_REFERENCE", "Of a batch",
		func(ctx context.Context, store *models.Store, site models.SiteID, args []string) error {
			story, err := store.BatchStory(ctx, site, args[1])
			if err != nil {
				return err
			}
			return p.printJSON(story)
		})
	payment := idCommand(p, "payment PAYMENT_INTENT", "Of a payment intent",
		func(ctx context.Context, store *models.Store, id models.PaymentIntentID, _ []string) error {
			story, err := store.PaymentStory(ctx, id)
			if err != nil {
				return err
			}
			story.Intent.Transaction.SealedParty = nil
			return p.printJSON(story)
		})
	cmd.AddCommand(batch, payment)
	return cmd
}

func (p *program) printJSON(value any) error {
	out := json.NewEncoder(p.stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(value)
}

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
			look, err := jobs.LookUpDebit(ctx, store, payments, args[0])
			if endErr := end(); err == nil {
				err = endErr
			}
			if err == nil {
				p.printLookUp(look)
			}
			return err
		})
	}
	return cmd
}

func (p *program) printLookUp(look jobs.DebitLookUp) {
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
