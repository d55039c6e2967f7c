package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

// recountCommand returns `svc admin recount`. It rebuilds the stored numbers of customers of Sites,
// from which the API answers totalItems. It prints each Site with the number of its customer links.
func (p *program) recountCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recount [SITE]...",
		Short: "Rebuild the customer totals of Sites (default all), which an audit has reported as wrong",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sites := make([]models.SiteID, len(args))
		for i, text := range args {
			if err := parseID(&sites[i], text); err != nil {
				return err
			}
		}
		return p.withStore(cmd.Context(), func(ctx context.Context, _ Config, store *models.Store) (err error) {
			if len(sites) == 0 {
				if sites, err = store.LinkedSites(ctx); err != nil {
					return err
				}
			}
			for _, site := range sites {
				links, err := store.RecountLinks(ctx, site)
				if err != nil {
					return err
				}
				fmt.Fprintf(p.stdout, "%s %d\n", site, links)
			}
			return nil
		})
	}
	return acting(models.ActRecountCustomers, cmd)
}
