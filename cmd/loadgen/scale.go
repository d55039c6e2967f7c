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
)

func scaleCommand(out io.Writer) *cobra.Command {
	s := scale{partners: partners{bench: bench{out: out}}}
	cmd := s.command("scale", "Measure what a rail with latency, in the workers' process, lets through, over the number of workers and over the latency", 5, s.run, s.close)
	cmd.Flags().IntSliceVar(&s.workers, "workers", []int{1, 2, 4, 8}, "numbers of workers")
	cmd.Flags().DurationVar(&s.latency, "latency", 50*time.Millisecond, "latency of the rail, for each number of workers")
	cmd.Flags().DurationSliceVar(&s.latencies, "latencies",
		[]time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond},
		"latencies of the rail, for two workers")
	cmd.Flags().IntVar(&s.inFlight, "in-flight", 64, "debits that a worker has under way at once")
	cmd.Flags().DurationVar(&s.measured, "measure", 4*time.Second, "time in which settled rows count")
	cmd.Flags().DurationVar(&s.warmUp, "warm-up", 3*time.Second, "time before it, for connections and for all workers to be under way")
	cmd.Flags().StringVar(&s.chart, "chart", "", "write an SVG chart of the rates to this file")
	return cmd
}

// scale measures whether the rail is the limit. The workers are in this process, with a dispatcher, an Asynq server and a
// Postgres pool each: an HTTP gateway for thousands of debits a second would have no room beside them.
type scale struct {
	partners
	workers   []int
	latency   time.Duration
	latencies []time.Duration
	inFlight  int
	measured  time.Duration
	warmUp    time.Duration
	chart     string
}

// latencyWorkers are the workers while the latency varies.
const latencyWorkers = 2

// scalePoint is one place of a chart.
type scalePoint struct {
	label   string
	workers int
	latency time.Duration
	rate    *series
}

// limit is what the rail lets through.
func (s *scale) limit(p scalePoint) float64 {
	return float64(p.workers*s.inFlight) / p.latency.Seconds()
}

func (s *scale) run(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.addPartners(ctx, drainSites); err != nil {
		return err
	}
	byWorkers, byLatency := s.points()
	all := append(append([]scalePoint{}, byWorkers...), byLatency...)
	for range s.runs { // in turns, so that a drift of the machine meets all alike
		for _, p := range all {
			if err := errors.Join(s.measure(ctx, p), s.forgetBatches(ctx)); err != nil {
				return fmt.Errorf("%s: %w", p.rate.Name, err)
			}
		}
	}
	if err := s.writeChart(byWorkers, byLatency); err != nil {
		return err
	}
	var figures []*series
	var ratios []ratio
	for _, p := range all {
		figures = append(figures, p.rate)
		ratios = append(ratios, ratio{
			Name: fmt.Sprintf("%s ÷ %.0f", p.rate.Name, s.limit(p)), Value: p.rate.median() / s.limit(p), Target: 0.9,
		})
	}
	return s.report(figures, ratios)
}

func (s *scale) points() (byWorkers, byLatency []scalePoint) {
	for _, n := range s.workers {
		byWorkers = append(byWorkers, scalePoint{
			fmt.Sprint(n), n, s.latency, &series{Name: fmt.Sprintf("%d workers, rail at %s", n, s.latency), Unit: "rows/s"},
		})
	}
	for _, latency := range s.latencies {
		byLatency = append(byLatency, scalePoint{
			fmt.Sprint(latency.Milliseconds()), latencyWorkers, latency,
			&series{Name: fmt.Sprintf("rail at %s, %d workers", latency, latencyWorkers), Unit: "rows/s"},
		})
	}
	return byWorkers, byLatency
}

// measure lets workers drain a backlog that outlasts the measurement, and counts what is settled once all are under way.
func (s *scale) measure(ctx context.Context, p scalePoint) (err error) {
	rows := 1.2*s.limit(p)*(s.warmUp+s.measured).Seconds() + float64(p.workers*referenceConcurrency*models.ChunkRows)
	if err := s.submit(ctx, (int(rows)/models.MaxBatchRows+1)*models.MaxBatchRows); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	workers := make([]*worker, 0, p.workers)
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.end())
		}
	}()
	for range p.workers {
		w, err := s.workerOfItsOwn(ctx, workerConfig{
			queues: []models.Queue{models.QueueDebits}, rail: latentRail{latency: p.latency}, concurrency: s.inFlight,
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

// workerOfItsOwn starts a worker with a pool of its own, as large as that of svc worker.
func (b *bench) workerOfItsOwn(ctx context.Context, cfg workerConfig) (*worker, error) {
	store, err := models.Open(ctx, models.Config{DSN: b.local.DatabaseURL, ApplicationName: "loadgen worker"})
	if err != nil {
		return nil, err
	}
	cfg.store = store
	w, err := b.startWorker(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return w, nil
}

// settledRate is how many rows a second are settled in a time, after some has gone by; the time goes on until there are any. A
// backlog that ends meanwhile is an error: the rate would be too low.
func (b *bench) settledRate(ctx context.Context, warmUp, measured time.Duration) (float64, error) {
	if err := wait(ctx, warmUp); err != nil {
		return 0, err
	}
	_, before, err := b.counts(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for {
		if err := wait(ctx, measured); err != nil {
			return 0, err
		}
		all, after, err := b.counts(ctx)
		took := time.Since(began)
		switch {
		case err != nil:
			return 0, err
		case after == all:
			return 0, errors.New("the backlog has come to its end before the measurement")
		case after > before:
			return float64(after-before) / took.Seconds(), nil
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// latentRail answers after the latency that everything was debited.
type latentRail struct {
	rail.Unlimited
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

// Lookup implements rail.Rail.
func (r latentRail) Lookup(ctx context.Context, keys []string, report func(int, rail.Result)) {
	instantRail{}.Lookup(ctx, keys, report)
}

// Cancel implements rail.Rail.
func (r latentRail) Cancel(ctx context.Context, keys []string, report func(int, rail.Result)) {
	instantRail{}.Cancel(ctx, keys, report)
}
