package main

import (
	"context"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// findCommand returns `svc admin find`, which lists what a text names, at most [models.MaxHits]
// hits: see [models.Store.Search].
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

// storyCommand returns `svc admin story`, which prints everything that the service knows about a
// batch or a payment intent: a [models.BatchStory] or a [models.PaymentStory]. It leaves out the
// sealed customer of a payment.
func (p *program) storyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "story", Short: "Print everything about a batch or a payment, with rail keys and events, as JSON",
	}
	batch := idCommand(p, "batch SITE BATCH_REFERENCE", "Print everything about a batch",
		func(ctx context.Context, store *models.Store, site models.SiteID, args []string) error {
			story, err := store.BatchStory(ctx, site, args[1])
			if err != nil {
				return err
			}
			return p.printJSON(story)
		})
	payment := idCommand(p, "payment PAYMENT_INTENT", "Print everything about a payment intent",
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
