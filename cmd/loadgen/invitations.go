package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

func invitationsCommand(out io.Writer) *cobra.Command {
	i := invitations{bench: bench{out: out}}
	cmd := i.command("invitations", "Measure the cost of exact counts for invitations, with 16 writers on one Site", 5,
		i.run, i.close)
	cmd.Flags().DurationVar(&i.measured, "measure", 5*time.Second, "duration of each run")
	return cmd
}

// invitations measures the rate of invitations with and without the exact counts of customer links,
// to show what the counts cost. The cost includes the folding of changes into the counts.
type invitations struct {
	bench
	measured time.Duration
}

// countStatements returns statements that disable the triggers of customer_links and drop the index
// for exact counts, and statements that restore both. Such changes invalidate the query plans of
// the table. Both lists end with ANALYZE, so that new plans are good.
func (i *invitations) countStatements(ctx context.Context) (remove, restore []string, err error) {
	const index = "customer_links_overdue_whole"
	var create string
	err = i.store.DB().NewRaw("SELECT pg_get_indexdef(?::regclass)", index).Scan(ctx, &create)
	const analyze = "ANALYZE customer_links"
	return []string{"ALTER TABLE customer_links DISABLE TRIGGER USER", "DROP INDEX " + index, analyze},
		[]string{"ALTER TABLE customer_links ENABLE TRIGGER USER", create, analyze}, err
}

func (i *invitations) run(ctx context.Context) error {
	if err := i.open(ctx); err != nil {
		return err
	}
	remove, restore, err := i.countStatements(ctx)
	if err != nil {
		return err
	}
	with := &series{Name: "with counts", Unit: "invitations/s"}
	without := &series{Name: "without", Unit: "invitations/s"}
	steps := []func() error{
		func() error { return i.invite(ctx, with) },
		func() error {
			db := i.store.DB().DB
			return errors.Join(execAll(ctx, db, remove), i.invite(ctx, without), execAll(ctx, db, restore))
		},
	}
	for range i.runs { // in alternating order, so that a drift of the machine affects both
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		slices.Reverse(steps)
	}
	return i.report([]*series{with, without}, []ratio{
		medianRatio("with counts ÷ without", with, without, 0.8),
	})
}

// invite measures one run on a new Site, and adds the rate to the series. The measured time
// includes the folding of all changes.
func (i *invitations) invite(ctx context.Context, into *series) error {
	site, err := i.newSite(ctx)
	if err == nil {
		err = i.checkpoint(ctx)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	invited, err := i.whileWriting(ctx, site, true, i.measured, nil)
	for n := 1; err == nil && n > 0; {
		n, err = i.store.FoldLinkChanges(ctx, 5000)
	}
	into.add(float64(invited) / time.Since(began).Seconds())
	return err
}
