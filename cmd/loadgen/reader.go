package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func readerCommand(out io.Writer) *cobra.Command {
	r := reader{partners: partners{bench: bench{out: out}}}
	cmd := r.command("reader",
		"Measure the blocks that claims read while a transaction keeps its snapshot, against those read before", 1,
		r.run, r.close)
	cmd.Flags().DurationVar(&r.held, "reader", 10*time.Minute, "duration of the transaction")
	cmd.Flags().DurationVar(&r.measured, "measure", 20*time.Second,
		"duration of each measurement: before the transaction, and at its end")
	cmd.Flags().DurationVar(&r.warmUp, "warm-up", 20*time.Second, "time under load before the first measurement")
	cmd.Flags().IntVar(&r.load.batches, "batches", 5, "batches of 1000 rows per second; 0: none")
	cmd.Flags().IntVar(&r.load.payments, "payments", 50, "payments per second, each with an event; 0: none")
	cmd.Flags().IntVar(&r.load.events, "events", 50, "further events per second; 0: none")
	return cmd
}

// reader measures how a database transaction that keeps its snapshot, such as a report, slows down
// the statements that find unfinished work. Vacuum cannot remove row versions that were deleted
// after the snapshot. Index scans must then pass over all of them.
type reader struct {
	partners
	held, measured, warmUp time.Duration // the flags explain these
	load                   readerLoad

	receivers *receivers // of the webhooks
}

// readerWindow is the result of one measurement under load.
type readerWindow struct {
	blocks           []float64 // of each call or row, by index of readerClaims
	rows, deliveries float64   // rows settled, and webhook attempts recorded, per second
}

func (r *reader) run(ctx context.Context) error {
	if min(r.load.batches, r.load.payments, r.load.events) < 0 {
		return errors.New("--batches, --payments and --events cannot be negative")
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	before := make([]*series, len(readerClaims))
	after := make([]*series, len(readerClaims))
	for i, c := range readerClaims {
		before[i] = &series{Name: c.name + ", before", Unit: c.unit()}
		after[i] = &series{Name: c.name + ", at the end of the reader", Unit: c.unit()}
	}
	var rates [4]*series
	for i, name := range []string{"rows settled, before", "rows settled, at the end of the reader",
		"events delivered, before", "events delivered, at the end of the reader"} {
		rates[i] = &series{Name: name, Unit: "per second"}
	}
	for range r.runs {
		first, last, err := r.measure(ctx)
		if err != nil {
			return err
		}
		for i := range readerClaims {
			before[i].add(first.blocks[i])
			after[i].add(last.blocks[i])
		}
		for i, rate := range []float64{first.rows, last.rows, first.deliveries, last.deliveries} {
			rates[i].add(rate)
		}
	}
	var all []*series
	var ratios []ratio
	for i, c := range readerClaims {
		all = append(all, before[i], after[i])
		ratios = append(ratios, medianRatio(c.name+": blocks with the reader ÷ before", after[i], before[i], -2))
	}
	return r.report(slices.Concat(all, rates[:]), append(ratios,
		medianRatio("rows settled, with the reader ÷ before", rates[1], rates[0], 0.9),
		medianRatio("events delivered, with the reader ÷ before", rates[3], rates[2], 0.9)))
}

// start starts the servers and the receivers of webhooks, and creates partners with endpoints.
func (r *reader) start(ctx context.Context) error {
	r.libraries = []string{statementLibrary}
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.exec(ctx, "CREATE EXTENSION "+statementLibrary); err != nil {
		return err
	}
	if err := r.addPartners(ctx, benchSites); err != nil {
		return err
	}
	ring, err := keyring()
	if err != nil {
		return err
	}
	if r.receivers, err = newReceivers(ctx, len(r.sites)); err != nil {
		return err
	}
	for i, site := range r.sites {
		_, _, err := r.store.PutWebhookEndpoint(ctx, ring, site.OrganisationID, site.ID, r.receivers.urls[i])
		if err != nil {
			return err
		}
	}
	return nil
}

// measure measures twice under load: before the transaction begins, and just before it ends. A
// worker of all queues drains the load.
func (r *reader) measure(ctx context.Context) (before, after readerWindow, err error) {
	w, err := r.startWorker(ctx, workerConfig{
		queues: models.Queues, recurring: readerSweeps, rail: instantRail{},
	})
	if err != nil {
		return before, after, err
	}
	load := r.startLoad(ctx, w)
	before, after, err = r.measureUnderLoad(ctx)
	return before, after, errors.Join(err, load.end(), w.end())
}

// measureUnderLoad is measure without the start and the end of the load.
func (r *reader) measureUnderLoad(ctx context.Context) (before, after readerWindow, err error) {
	if err := wait(ctx, r.warmUp); err != nil {
		return before, after, err
	}
	if before, err = r.window(ctx); err != nil {
		return before, after, err
	}
	release, err := r.holdSnapshot(ctx)
	if err != nil {
		return before, after, err
	}
	if err := wait(ctx, max(0, r.held-r.measured)); err != nil {
		return before, after, errors.Join(err, release())
	}
	after, err = r.window(ctx)
	return before, after, errors.Join(err, release())
}

// window measures for the duration --measure. It returns an error if one of readerClaims did not
// run in that time.
func (r *reader) window(ctx context.Context) (w readerWindow, err error) {
	before, err := r.readWork(ctx)
	if err != nil {
		return w, err
	}
	began := time.Now()
	if err := wait(ctx, r.measured); err != nil {
		return w, err
	}
	after, err := r.readWork(ctx)
	if err != nil {
		return w, err
	}
	took := time.Since(began).Seconds()
	w.rows = float64(after.rows-before.rows) / took
	w.deliveries = float64(after.deliveries-before.deliveries) / took
	for i, c := range readerClaims {
		blocks, ok := c.blocks(before.statements[i], after.statements[i])
		if !ok {
			return w, fmt.Errorf("%s: no such statement ran for %s", c.name, r.measured)
		}
		w.blocks = append(w.blocks, blocks)
	}
	return w, nil
}

// holdSnapshot begins a database transaction that keeps its snapshot until release is called. The
// connection has none of the service's settings, like the connection of a report or a dump.
func (r *reader) holdSnapshot(ctx context.Context) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, r.databaseURL)
	if err != nil {
		return nil, err
	}
	release = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return conn.Close(ctx)
	}
	// The first statement takes the snapshot.
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM sites")
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

func (r *reader) close() error {
	var err error
	if r.receivers != nil {
		err = r.receivers.close()
	}
	return errors.Join(err, r.bench.close())
}
