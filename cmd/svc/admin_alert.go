package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// alertsCommand returns `svc admin alerts`, which lists at most 1000 open alerts, the oldest first.
// Its subcommands acknowledge and close alerts. An alert is named by its kind and its subject.
func (p *program) alertsCommand() *cobra.Command {
	list := func(ctx context.Context, store *models.Store, _ []string) error {
		alerts, err := store.OpenAlerts(ctx, 1000)
		if err != nil {
			return err
		}
		const heading = "RAISED\tKIND\tSUBJECT\tDETAIL\tORGANISATION\tSITE\tTRACE\tACKNOWLEDGED"
		return p.table(heading, func(row func(...any)) {
			for _, a := range alerts {
				row(formatTime(a.RaisedAt), a.Kind, a.Subject, a.Detail, orEmpty(a.OrganisationID),
					orEmpty(a.SiteID), a.TraceID, a.AcknowledgedBy)
			}
		})
	}
	cmd := p.storeCommand("alerts", "List open alerts", list)
	acknowledge := p.storeCommand("acknowledge KIND SUBJECT", "Record that you are looking at an alert",
		func(ctx context.Context, store *models.Store, args []string) error {
			return explainAlert(store.AcknowledgeAlert(ctx, args[0], args[1]))
		})
	cmd.AddCommand(acting(models.ActCloseAlert, p.closeAlertCommand()),
		acting(models.ActAcknowledgeAlert, acknowledge))
	return cmd
}

// closeAlertCommand returns `svc admin alerts close`, which closes one alert, or all alerts of a
// kind that concern an organisation.
func (p *program) closeAlertCommand() *cobra.Command {
	var organisation string
	cmd := &cobra.Command{
		Use: "close KIND {SUBJECT | --organisation ORGANISATION}", Short: "Close an alert after it has been dealt with",
		Args: func(cmd *cobra.Command, args []string) error {
			if organisation != "" {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var id models.OrganisationID
		if organisation != "" {
			if err := parseID(&id, organisation); err != nil {
				return fmt.Errorf("--organisation: %w", err)
			}
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			if organisation == "" {
				return explainAlert(store.CloseAlert(ctx, args[0], args[1]))
			}
			n, err := store.CloseOrganisationAlerts(ctx, args[0], id)
			if err == nil {
				fmt.Fprintln(p.stdout, web.Plural(n, "alert", "alerts"), "closed")
			}
			return explainAlert(err)
		})
	}
	cmd.Flags().StringVar(&organisation, "organisation", "",
		"close all alerts of the kind that concern this organisation")
	return cmd
}

// explainAlert replaces the text of models.ErrNotFound by a message about alerts.
func explainAlert(err error) error {
	if errors.Is(err, models.ErrNotFound) {
		return explain(err, "no such alert is open; svc admin alerts lists the open ones")
	}
	return err
}
