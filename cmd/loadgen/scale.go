package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

func scaleCommand(out io.Writer) *cobra.Command {
	s := scale{partners: partners{bench: bench{out: out}}}
	cmd := s.command("scale",
		"Measure the rate of workers on a rail with latency, by number of workers and by latency", 5,
		s.run, s.close)
	cmd.Flags().IntSliceVar(&s.workers, "workers", []int{1, 2, 4, 8}, "numbers of workers")
	cmd.Flags().DurationVar(&s.latency, "latency", 50*time.Millisecond,
		"latency of the rail, for each number of workers")
	cmd.Flags().DurationSliceVar(&s.latencies, "latencies",
		[]time.Duration{
			20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
			500 * time.Millisecond,
		},
		"latencies of the rail, for two workers")
	cmd.Flags().IntVar(&s.inFlight, "in-flight", 64, "debits in flight per worker")
	cmd.Flags().DurationVar(&s.measured, "measure", 4*time.Second, "duration of the measurement")
	cmd.Flags().DurationVar(&s.warmUp, "warm-up", 3*time.Second,
		"time before the measurement, until connections are open and all workers debit")
	return cmd
}

// scale measures whether workers reach the maximum rate of a rail with latency. The workers run in
// this process, each with a dispatcher, an Asynq server and a Postgres pool of its own. So does the
// rail: an HTTP gateway would use so much CPU that the machine would limit the rate.
type scale struct {
	partners
	workers   []int           // numbers of workers to measure
	latency   time.Duration   // of the rail while the number of workers varies
	latencies []time.Duration // of the rail, to measure with latencyWorkers
	inFlight  int             // debits in flight per worker
	measured  time.Duration
	warmUp    time.Duration
}

// latencyWorkers is the number of workers while the latency varies.
const latencyWorkers = 2

// scalePoint is one measured configuration: a number of workers on a rail with a latency.
type scalePoint struct {
	workers int
	latency time.Duration
	rate    *series // settled rows per second
}

// limit returns the maximum rate at a point, in rows per second: each debit in flight takes the
// latency.
func (s *scale) limit(p scalePoint) float64 {
	return float64(p.workers*s.inFlight) / p.latency.Seconds()
}

func (s *scale) run(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.addPartners(ctx, benchSites); err != nil {
		return err
	}
	all := s.points()
	for range s.runs { // in rotation, so that a drift of the machine affects all
		for _, p := range all {
			if err := errors.Join(s.measure(ctx, p), s.deleteBatches(ctx)); err != nil {
				return fmt.Errorf("%s: %w", p.rate.Name, err)
			}
		}
	}
	var results []*series
	var ratios []ratio
	for _, p := range all {
		results = append(results, p.rate)
		ratios = append(ratios, ratio{
			Name: fmt.Sprintf("%s ÷ %.0f", p.rate.Name, s.limit(p)), Value: p.rate.median() / s.limit(p), Target: 0.9,
		})
	}
	return s.report(results, ratios)
}

// points returns all configurations: first those with different numbers of workers, then those with
// different latencies.
func (s *scale) points() (all []scalePoint) {
	for _, n := range s.workers {
		all = append(all, scalePoint{
			n, s.latency,
			&series{Name: fmt.Sprintf("%d workers, rail at %s", n, s.latency), Unit: "rows/s"},
		})
	}
	for _, latency := range s.latencies {
		all = append(all, scalePoint{
			latencyWorkers, latency,
			&series{Name: fmt.Sprintf("rail at %s, %d workers", latency, latencyWorkers), Unit: "rows/s"},
		})
	}
	return all
}

// measure measures the rate at a point and adds it to the point's series. The backlog has enough
// rows to outlast the measurement.
func (s *scale) measure(ctx context.Context, p scalePoint) (err error) {
	rows := 1.2*s.limit(p)*(s.warmUp+s.measured).Seconds() + float64(p.workers*maxClaimed)
	if err := s.submit(ctx, (int(rows)/models.MaxBatchRows+1)*models.MaxBatchRows); err != nil {
		return err
	}
	if err := s.checkpoint(ctx); err != nil {
		return err
	}
	workers := make([]*worker, 0, p.workers)
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.end())
		}
	}()
	for range p.workers {
		w, err := s.startIsolatedWorker(ctx, workerConfig{
			queues: []models.Queue{models.QueueDebits}, rail: latentRail{latency: p.latency},
			concurrency: s.inFlight,
		})
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	rate, err := s.settledRate(ctx, s.warmUp, s.measured)
	p.rate.add(rate)
	return err
}

// startIsolatedWorker starts a worker with a Postgres pool of its own. The pool has the default
// size of `svc worker`.
func (b *bench) startIsolatedWorker(ctx context.Context, cfg workerConfig) (*worker, error) {
	store, err := models.Open(postgres.Config{DSN: b.databaseURL, ApplicationName: "loadgen worker"})
	if err != nil {
		return nil, err
	}
	ring, err := keyring()
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	store.SetKeyring(ring)
	cfg.store = store
	w, err := b.startWorker(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return w, nil
}

// wait waits for d. It returns the error of ctx if ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	if !sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// latentRail is a rail on which every debit succeeds after the latency. If the context ends first,
// the answer is not known.
type latentRail struct {
	instantRail
	latency time.Duration
}

// Debit implements rail.Rail.
func (r latentRail) Debit(ctx context.Context, debits []rail.Debit, report func(int, rail.Result)) {
	answer := rail.Result{Status: rail.Succeeded}
	if wait(ctx, r.latency) != nil {
		answer = rail.Result{}
	}
	for i := range debits {
		report(i, answer)
	}
}
