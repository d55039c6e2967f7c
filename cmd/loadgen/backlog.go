package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

func backlogCommand(out io.Writer) *cobra.Command {
	g := growth{partners: partners{bench: bench{out: out}}}
	cmd := g.command("backlog", "Measure whether a long backlog slows a worker down", 5, g.run, g.close)
	cmd.Flags().IntVar(&g.short, "short", 10_000, "rows of the short backlog")
	cmd.Flags().IntVar(&g.long, "long", 1_000_000, "rows of the long backlog")
	cmd.Flags().DurationVar(&g.measured, "measure", 5*time.Second,
		"duration of the measurement, after a warm-up of a fifth of it")
	return cmd
}

// growth measures one worker on a rail without latency, while a feeder keeps the backlog at a
// level. A short backlog thus lasts as long as a long one, and the submissions cost the same in
// both.
type growth struct {
	partners
	short, long int
	measured    time.Duration
}

func (g *growth) run(ctx context.Context) error {
	if err := g.open(ctx); err != nil {
		return err
	}
	if err := g.addPartners(ctx, benchSites); err != nil {
		return err
	}
	short := &series{Name: fmt.Sprintf("backlog of %d rows", g.short), Unit: "rows/s"}
	long := &series{Name: fmt.Sprintf("backlog of %d rows", g.long), Unit: "rows/s"}
	for range g.runs { // alternately, so that a drift of the machine affects both
		if err := errors.Join(g.drainAt(ctx, g.short, g.measured, short), g.deleteBatches(ctx)); err != nil {
			return err
		}
		if err := errors.Join(g.drainAt(ctx, g.long, g.measured, long), g.deleteBatches(ctx)); err != nil {
			return err
		}
	}
	return g.report([]*series{short, long}, []ratio{
		{Name: "long backlog ÷ short", Value: long.median() / short.median(), Target: 0.9},
	})
}
