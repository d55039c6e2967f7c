package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// organisationCommand returns `svc admin organisation`, which adds, colours and lists partner
// organisations. The colour is that of the pages that the service hosts for an organisation.
func (p *program) organisationCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "organisation", Short: "Manage partner organisations"}
	cmd.AddCommand(acting(models.ActAddOrganisation, p.addOrganisationCommand()),
		acting(models.ActColourOrganisation, p.colourOrganisationCommand()),
		p.storeCommand("list", "List the organisations and their Sites", p.listOrganisations))
	return cmd
}

// addOrganisationCommand returns `svc admin organisation add`, which prints the id of the new
// organisation.
func (p *program) addOrganisationCommand() *cobra.Command {
	var text string
	add := &cobra.Command{Use: "add NAME", Short: "Add an organisation", Args: cobra.ExactArgs(1)}
	add.Flags().StringVar(&text, "colour", noColour, "colour of its hosted pages, such as #1f5fae; none: by its name")
	add.RunE = func(cmd *cobra.Command, args []string) error {
		colour, err := parseColour(text)
		if err != nil {
			return fmt.Errorf("--colour: %w", err)
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			organisation, err := store.CreateOrganisationWithColour(ctx, args[0], colour)
			if err != nil {
				return err
			}
			fmt.Fprintln(p.stdout, organisation.ID)
			return nil
		})
	}
	return add
}

// colourOrganisationCommand returns `svc admin organisation colour`, which replaces a colour.
func (p *program) colourOrganisationCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "colour ORGANISATION COLOUR|none",
		Short: "Replace the colour of an organisation's hosted pages; none: a colour by its name",
		Args:  cobra.ExactArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var organisation models.OrganisationID
		if err := parseID(&organisation, args[0]); err != nil {
			return err
		}
		colour, err := parseColour(args[1])
		if err != nil {
			return err
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) error {
			return store.SetOrganisationColour(ctx, organisation, colour)
		})
	}
	return cmd
}

// noColour says that no colour is chosen: the pages derive one from the organisation's name.
const noColour = "none"

// parseColour parses a colour such as #1f5fae. It returns "" for noColour.
func parseColour(text string) (models.Colour, error) {
	if text == noColour {
		return "", nil
	}
	return models.ParseColour(text)
}

// listOrganisations implements `svc admin organisation list`. It prints a row for each
// organisation, followed by a row for each of its Sites.
func (p *program) listOrganisations(ctx context.Context, store *models.Store, _ []string) error {
	organisations, err := store.Organisations(ctx)
	if err != nil {
		return err
	}
	printed := p.table("ORGANISATION\tSITE\tCOLOUR\tNAME", func(row func(...any)) {
		for _, o := range organisations {
			row(o.ID, "", cmp.Or(o.Colour, noColour), o.Name)
			var sites []models.Site
			if sites, err = store.Sites(ctx, o.ID); err != nil {
				return
			}
			for _, s := range sites {
				row("", s.ID, "", s.Name)
			}
		}
	})
	return errors.Join(err, printed)
}
