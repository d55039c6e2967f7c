package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// webhookAdminCommand returns `svc admin webhook`, with which operators find and repeat webhook
// deliveries that failed.
func (p *program) webhookAdminCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "webhook", Short: "List, redeliver and unpark webhook deliveries"}
	cmd.AddCommand(p.deadLettersCommand(), p.parkedCommand(),
		acting(models.ActRedeliverForPartner, p.redeliverCommand()),
		acting(models.ActUnparkEndpoint, p.unparkCommand()))
	return cmd
}

// deadLettersCommand returns `svc admin webhook dead-letters`, which counts the events that were
// not delivered. It prints a row for each organisation that has any, for at most
// [models.MostCounted] organisations. Each count is at most [models.MostCounted].
func (p *program) deadLettersCommand() *cobra.Command {
	return p.storeCommand("dead-letters", "Count failed, undelivered and parked events by organisation",
		func(ctx context.Context, store *models.Store, _ []string) error {
			letters, err := store.DeadLetters(ctx, models.MostCounted)
			if err != nil {
				return err
			}
			return p.table("ORGANISATION\tFAILED\tUNDELIVERED\tPARKED\tNAME", func(row func(...any)) {
				for _, l := range letters {
					row(l.OrganisationID, l.Failed, l.Undelivered, l.Parked, printable(l.Organisation))
				}
			})
		})
}

// parkedCommand returns `svc admin webhook parked`, which lists endpoints that need attention, at
// most [models.MostCounted]. See [models.TroubledEndpoint] for the columns.
func (p *program) parkedCommand() *cobra.Command {
	return p.storeCommand("parked", "List endpoints that are disabled, failing, or have parked events",
		func(ctx context.Context, store *models.Store, _ []string) error {
			endpoints, err := store.TroubledEndpoints(ctx, models.MostCounted)
			if err != nil {
				return err
			}
			const heading = "ORGANISATION\tENDPOINT\tHOST\tPARKED\tSINCE\tFAILURES\tOPEN UNTIL\tDISABLED"
			return p.table(heading, func(row func(...any)) {
				for _, e := range endpoints {
					row(e.OrganisationID, cmp.Or(orEmpty(e.SiteID), "default"), printable(e.Host), e.Parked,
						formatTime(e.ParkedSince), e.Failures, formatTime(e.OpenUntil), formatTime(e.DisabledAt))
				}
			})
		})
}

// redeliverCommand returns `svc admin webhook redeliver`, which has one event, or all events that
// the flags select, delivered again. A selection leaves out test events. If a run cannot reach all
// selected events, it prints the --from of the next run.
func (p *program) redeliverCommand() *cobra.Command {
	var event, status, site, from, to string
	cmd := p.ofOrganisation("redeliver", "Redeliver one event, or the events of a status and a range of creation times",
		func(store *models.Store, ctx context.Context, organisation models.OrganisationID) error {
			if event != "" {
				id, err := models.ParseWebhookEventID(event)
				if err != nil {
					return fmt.Errorf("--event: %w", err)
				}
				_, _, err = store.RedeliverWebhook(ctx, organisation, id)
				return err
			}
			filter, err := redeliveryFilter(status, site, from, to)
			if err != nil {
				return err
			}
			done, err := store.RedeliverWebhooks(ctx, organisation, filter)
			if err != nil && done.Count == 0 {
				return err
			}
			fmt.Fprintln(p.stdout, web.Plural(done.Count, "event", "events"),
				"will be delivered again, if an endpoint is enabled")
			if done.ResumeFrom != 0 {
				fmt.Fprintf(p.stdout, "more events match: run the same command later with --from %s\n",
					done.ResumeFrom.Time().Format(time.RFC3339Nano))
			}
			return err
		})
	flags := cmd.Flags()
	flags.StringVar(&event, "event", "", "redeliver only this event, by its idempotencyKey")
	flags.StringVar(&status, "status", string(models.WebhookFailed),
		"only events of this status: failed, undelivered, delivered")
	flags.StringVar(&site, "site", "", "only events of this Site, by its siteId")
	flags.StringVar(&from, "from", "", "earliest creation: 2026-01-31 or 2026-01-31T08:00:00Z")
	flags.StringVar(&to, "to", "", "latest creation, in the same form; a day means its beginning")
	for _, other := range []string{"status", "site", "from", "to"} {
		cmd.MarkFlagsMutuallyExclusive("event", other)
	}
	return cmd
}

// redeliveryFilter returns the filter that the flags describe. It refuses malformed values, and the
// status pending: such events are delivered anyway.
func redeliveryFilter(status, site, from, to string) (filter models.WebhookFilter, err error) {
	filter.Status = models.WebhookStatus(status)
	if !filter.Status.Valid() || filter.Status == models.WebhookPending {
		return filter, fmt.Errorf("--status: %q is none of failed, undelivered and delivered", status)
	}
	if site != "" {
		if err := parseID(&filter.SiteID, site); err != nil {
			return filter, fmt.Errorf("--site: %w", err)
		}
	}
	for _, bound := range []struct {
		flag, text string
		at         **models.Millis
	}{{"--from", from, &filter.From}, {"--to", to, &filter.To}} {
		at, err := parseTime(bound.flag, bound.text)
		if err != nil {
			return filter, err
		}
		if at != 0 {
			*bound.at = &at
		}
	}
	return filter, nil
}

// unparkCommand returns `svc admin webhook unpark`, which enables an endpoint and closes its
// breaker. Its parked events then go out.
func (p *program) unparkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unpark ORGANISATION [SITE]",
		Short: "Enable the organisation's default endpoint, or that of a Site, and send its parked events",
		Args:  cobra.RangeArgs(1, 2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var organisation models.OrganisationID
		var site models.SiteID
		err := parseID(&organisation, args[0])
		if len(args) > 1 {
			err = errors.Join(err, parseID(&site, args[1]))
		}
		if err != nil {
			return err
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			err := store.UnparkWebhookEndpoint(ctx, organisation, site)
			switch {
			case errors.Is(err, models.ErrNotBlocked):
				return explain(err, "the endpoint is enabled, and its breaker holds no event back")
			case errors.Is(err, models.ErrNoWebhookEndpoint):
				return explain(err, "there is no such endpoint")
			}
			return err
		})
	}
	return cmd
}
