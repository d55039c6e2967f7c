package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func endpointCommand(out io.Writer) *cobra.Command {
	e := endpoint{webhooks: webhooks{bench: bench{out: out}}}
	cmd := e.command("endpoint",
		"Measure how fast a worker delivers the events of a single endpoint, and what that costs the others", 5,
		e.run, e.close)
	cmd.Flags().IntVar(&e.backlog, "backlog", 20_000, "events of the single endpoint in each run")
	cmd.Flags().IntVar(&e.endpoints, "endpoints", 100, "number of endpoints, each of an organisation of its own")
	cmd.Flags().IntVar(&e.rate, "rate", 100, "events per second of the other endpoints")
	cmd.Flags().DurationVar(&e.warmUp, "warm-up", 3*time.Second, "time before events are measured")
	cmd.Flags().DurationVar(&e.measured, "measure", 5*time.Second, "duration of the measurement of the others")
	return cmd
}

// endpoint measures how fast a worker delivers a flood of events to a single webhook endpoint, and
// what the flood costs other endpoints. Those get events at a steady rate, without the flood and
// beside it.
type endpoint struct {
	webhooks
	rate int // of the other endpoints, in events per second
}

func (e *endpoint) run(ctx context.Context) error {
	e.organisations = e.endpoints
	if err := e.open(ctx); err != nil {
		return err
	}
	if err := errors.Join(e.seed(ctx), e.reset(ctx)); err != nil {
		return err
	}
	flatOut := &series{Name: "one endpoint, flat out", Unit: "deliveries/s"}
	beside := &series{Name: "one endpoint, beside the others", Unit: "deliveries/s"}
	calm := latencySeries{
		&series{Name: "commit to received, others alone, p50", Unit: "ms"},
		&series{Name: "commit to received, others alone, p99", Unit: "ms"},
	}
	flooded := latencySeries{
		&series{Name: "commit to received, others beside the flood, p50", Unit: "ms"},
		&series{Name: "commit to received, others beside the flood, p99", Unit: "ms"},
	}
	steps := []func() error{
		func() error { return e.deliverBacklog(ctx, flatOut) },
		func() error { return e.others(ctx, calm, nil) },
		func() error { return e.others(ctx, flooded, beside) },
	}
	for range e.runs { // in alternating order, so that a drift of the machine affects all
		for _, step := range steps {
			if err := errors.Join(e.checkpoint(ctx), step(), e.reset(ctx)); err != nil {
				return err
			}
		}
		slices.Reverse(steps)
	}
	return e.report([]*series{flatOut, beside, calm.p50, calm.p99, flooded.p50, flooded.p99}, []ratio{
		flatOut.bounded(2500),
		medianRatio("p99 of the others, beside the flood ÷ alone", flooded.p99, calm.p99, -1.1),
	})
}

// insertBacklog commits the events of the single endpoint, which is the first one.
func (e *endpoint) insertBacklog(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for range e.backlog {
		group.Go(func() error { return e.insert(groupCtx, 0, false) })
	}
	return group.Wait()
}

// deliverBacklog measures the rate at which a new worker delivers the backlog and records the
// attempts. It adds the rate to the series.
func (e *endpoint) deliverBacklog(ctx context.Context, to *series) error {
	if err := errors.Join(e.insertBacklog(ctx), e.checkpoint(ctx)); err != nil {
		return err
	}
	began := time.Now()
	if err := e.startWorker(ctx); err != nil {
		return err
	}
	_, err := e.awaitRecorded(ctx, e.backlog)
	to.add(float64(e.backlog) / time.Since(began).Seconds())
	return errors.Join(err, e.stopWorker())
}

// awaitRecorded waits until at least n attempts at the single endpoint are recorded, and returns
// their number.
func (e *endpoint) awaitRecorded(ctx context.Context, n int) (recorded int, err error) {
	err = await(ctx, 50*time.Millisecond, func() (done bool, err error) {
		recorded, err = e.recorded(ctx)
		return recorded >= n, err
	})
	return recorded, err
}

// recorded returns the number of recorded attempts at the single endpoint.
func (e *endpoint) recorded(ctx context.Context) (n int, err error) {
	err = e.store.DB().NewRaw("SELECT count(*) FROM webhook_attempts WHERE organisation_id = ?",
		e.sites[0].OrganisationID).Scan(ctx, &n)
	return n, err
}

// others measures events of the other endpoints at the steady rate, and adds the percentiles to the
// series. If flood is not nil, the single endpoint has a backlog meanwhile, whose rate is added to
// flood. It returns an error if that backlog ends before the measurement.
func (e *endpoint) others(ctx context.Context, to latencySeries, flood *series) error {
	if flood != nil {
		if err := errors.Join(e.insertBacklog(ctx), e.checkpoint(ctx)); err != nil {
			return err
		}
	}
	if err := e.startWorker(ctx); err != nil {
		return err
	}
	before := 0
	if flood != nil {
		var err error
		if before, err = e.awaitRecorded(ctx, 1); err != nil {
			return err
		}
	}
	began := time.Now()
	err := e.commitToOthers(ctx)
	if flood != nil {
		n, countErr := e.recorded(ctx)
		flood.add(float64(n-before) / time.Since(began).Seconds())
		err = errors.Join(err, countErr)
		if n >= e.backlog { // retries count too
			err = errors.Join(err, errors.New("the backlog was delivered before the end of the measurement"))
		}
	}
	latencies, awaitErr := e.receivers.await(ctx)
	if err := errors.Join(err, awaitErr, e.stopWorker()); err != nil {
		return err
	}
	slices.Sort(latencies)
	to.p50.add(quantile(latencies, 0.50))
	to.p99.add(quantile(latencies, 0.99))
	return nil
}

// commitToOthers commits events for the other endpoints in rotation. It marks those after the
// warm-up as measured.
func (e *endpoint) commitToOthers(ctx context.Context) error {
	warm := callsIn(e.warmUp, float64(e.rate))
	all := warm + callsIn(e.measured, float64(e.rate))
	return pace(ctx, float64(e.rate), all, func(ctx context.Context, n int, _ time.Time) error {
		return e.insert(ctx, 1+n%(e.endpoints-1), n >= warm)
	})
}
