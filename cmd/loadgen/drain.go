package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

func drainCommand(out io.Writer) *cobra.Command {
	d := drain{partners: partners{bench: bench{out: out}}}
	cmd := d.command("drain",
		"Measure how fast one worker settles a backlog of rows, against plain Asynq and against bare SQL", 5,
		d.run, d.close)
	cmd.Flags().IntVar(&d.rows, "rows", 200_000, "rows of each run, in batches of 1000")
	cmd.Flags().IntVar(&d.references, "reference-tasks", 20_000, "tasks of each run of plain Asynq")
	cmd.Flags().StringSliceVar(&d.only, "only", nil, "measure only these parts: noop, update, bare, instant, sandbox")
	return cmd
}

// drain measures how fast a worker settles a backlog. For comparison, it also measures references
// that do not use the service: plain Asynq and bare SQL.
type drain struct {
	partners
	rows       int      // of the backlog of each run
	references int      // tasks of each run of plain Asynq
	only       []string // names of the parts to measure; empty for all
}

// benchSites is the number of Sites over which a backlog is spread. Each belongs to an organisation
// of its own.
const benchSites = 4

func (d *drain) run(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	if err := d.addPartners(ctx, benchSites); err != nil {
		return err
	}
	noop := &series{Name: "Asynq, nothing to do", Unit: "tasks/s"}
	update := &series{Name: "Asynq, one update a task", Unit: "tasks/s"}
	bare := &series{Name: fmt.Sprintf("bare SQL, chunks of %d", models.ChunkRows), Unit: "rows/s"}
	instant := &series{Name: "engine, rail without latency", Unit: "rows/s"}
	sandbox := &series{Name: "engine, sandbox rail", Unit: "rows/s"}
	parts := []drainPart{
		{"noop", noop, func(ctx context.Context) (float64, error) { return d.asynqNoop(ctx, d.references) }},
		{"update", update, func(ctx context.Context) (float64, error) { return d.asynqUpdate(ctx, d.references) }},
		{"bare", bare, d.bareSQL},
		{"instant", instant, func(ctx context.Context) (float64, error) { return d.engine(ctx, instantRail{}) }},
		{"sandbox", sandbox, func(ctx context.Context) (float64, error) {
			return d.engine(ctx, rail.NewSandbox(d.store))
		}},
	}
	for range d.runs { // in rotation, so that a drift of the machine affects all
		for _, part := range parts {
			if len(d.only) > 0 && !slices.Contains(d.only, part.name) {
				continue
			}
			if err := d.checkpoint(ctx); err != nil {
				return err
			}
			rate, err := part.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", part.series.Name, err)
			}
			part.series.add(rate)
		}
	}
	return d.report([]*series{noop, update, bare, instant, sandbox}, []ratio{
		medianRatio("rail without latency ÷ bare SQL", instant, bare, 0.6),
		medianRatio("rail without latency ÷ Asynq with an update", instant, update, 5),
		medianRatio("sandbox rail ÷ Asynq with an update", sandbox, update, 3),
	})
}

// drainPart is one of the compared parts. measure returns its rate in the unit of the series.
type drainPart struct {
	name    string
	series  *series
	measure func(context.Context) (float64, error)
}

// engine returns the rate at which one worker settles a backlog on the rail, in rows per second.
func (d *drain) engine(ctx context.Context, r rail.Rail) (float64, error) {
	if err := d.submit(ctx, d.rows); err != nil {
		return 0, err
	}
	began := time.Now()
	w, err := d.startWorker(ctx, debitWorker(r))
	if err != nil {
		return 0, err
	}
	err = d.awaitSettled(ctx)
	took := time.Since(began)
	return float64(d.rows) / took.Seconds(), errors.Join(err, w.end())
}

// instantRail is a rail on which every debit succeeds at once.
type instantRail struct{ rail.Unlimited }

// Debit implements rail.Rail.
func (instantRail) Debit(_ context.Context, debits []rail.Debit, report func(int, rail.Result)) {
	for i := range debits {
		report(i, rail.Result{Status: rail.Succeeded})
	}
}

// Lookup implements rail.Rail. The rail remembers no debit.
func (instantRail) Lookup(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i := range keys {
		report(i, rail.Result{Status: rail.Unknown})
	}
}

// Cancel implements rail.Rail. The rail remembers no debit.
func (instantRail) Cancel(_ context.Context, keys []string, report func(int, rail.Result)) {
	for i := range keys {
		report(i, rail.Result{Status: rail.Unknown})
	}
}

// List implements rail.Rail. The rail keeps no list.
func (instantRail) List(context.Context, rail.ListQuery) (rail.ListPage, error) {
	return rail.ListPage{}, errors.ErrUnsupported
}
