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
	b := backlog{partners: partners{bench: bench{out: out}}}
	cmd := b.command("backlog", "Measure whether a long backlog slows a worker down", 5, b.run, b.close)
	cmd.Flags().IntVar(&b.short, "short", 10_000, "rows of the short backlog")
	cmd.Flags().IntVar(&b.long, "long", 1_000_000, "rows of the long backlog")
	cmd.Flags().DurationVar(&b.measured, "measure", 5*time.Second,
		"duration of the measurement, after a warm-up of a fifth of it")
	return cmd
}

// backlog compares the rate of one worker at a short and at a long backlog. The rail has no
// latency. A feeder keeps the number of open rows constant. Thus a short backlog lasts as long as a
// long one, and submissions cost the same in both.
type backlog struct {
	partners
	short, long int
	measured    time.Duration
}

func (b *backlog) run(ctx context.Context) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	if err := b.addPartners(ctx, benchSites); err != nil {
		return err
	}
	short := &series{Name: fmt.Sprintf("backlog of %d rows", b.short), Unit: "rows/s"}
	long := &series{Name: fmt.Sprintf("backlog of %d rows", b.long), Unit: "rows/s"}
	for range b.runs { // alternately, so that a drift of the machine affects both
		if err := errors.Join(b.drainAt(ctx, b.short, b.measured, short), b.deleteBatches(ctx)); err != nil {
			return err
		}
		if err := errors.Join(b.drainAt(ctx, b.long, b.measured, long), b.deleteBatches(ctx)); err != nil {
			return err
		}
	}
	return b.report([]*series{short, long}, []ratio{
		medianRatio("long backlog ÷ short", long, short, 0.9),
	})
}
