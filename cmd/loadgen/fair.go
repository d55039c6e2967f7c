package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"
)

func fairCommand(out io.Writer) *cobra.Command {
	f := fair{partners: partners{bench: bench{out: out}}}
	cmd := f.command("fair",
		"Measure how soon a small batch settles behind another partner's backlog, which a worker is draining", 30,
		f.run, f.close)
	cmd.Flags().IntVar(&f.backlog, "rows", 1_000_000, "minimum of pending rows of the other partner at each submission")
	cmd.Flags().IntVar(&f.small, "batch", 10, "rows of the small batch")
	cmd.Flags().DurationVar(&f.latency, "latency", 0, "latency of a payment gateway; 0: the sandbox rail")
	f.addSvcFlag(cmd)
	return cmd
}

// fair measures how soon a small batch settles while another partner has a large backlog. `svc api`
// and `svc worker` run as processes of their own.
type fair struct {
	partners
	backlog, small int           // open rows of the other partner; rows of the small batch
	latency        time.Duration // of the gateway

	gateway     *gateway // nil: the sandbox rail
	api, worker *process
}

// maxTrialPause bounds the pause before each trial. The pause is random, so that trials do not run
// in step with the worker.
const maxTrialPause = 500 * time.Millisecond

func (f *fair) run(ctx context.Context) error {
	if err := f.open(ctx); err != nil {
		return err
	}
	if err := f.addPartners(ctx, 2); err != nil {
		return err
	}
	var base string
	var rail []string
	var err error
	if f.latency > 0 {
		if f.gateway, err = f.startGateway(ctx, f.latency); err != nil {
			return err
		}
		rail = f.gateway.variables()
	}
	if f.api, base, err = f.startAPI(rail...); err != nil {
		return err
	}
	small, err := f.newBatchClient(ctx, newLoadClient(1), base, f.sites[1])
	if err != nil {
		return err
	}
	if err := f.topUp(ctx, f.sites[:1], f.backlog); err != nil {
		return err
	}
	workers, err := f.startWorkers(1, rail...)
	if err != nil {
		return err
	}
	f.worker = workers[0]
	if err := f.awaitFirst(ctx); err != nil {
		return err
	}
	answered := &series{Name: "submission to receipt", Unit: "ms"}
	settled := &series{Name: "submission to settled", Unit: "ms"}
	drained := &series{Name: "rows of the other partner settled meanwhile", Unit: "rows"}
	for range f.runs {
		if err := f.trial(ctx, small, answered, settled, drained); err != nil {
			return errors.Join(err, checkRunning(f.api, f.worker))
		}
	}
	return f.reportTrials(answered, settled, drained)
}

func (f *fair) close() error {
	err := terminateAll(f.api, f.worker)
	if f.gateway != nil {
		err = errors.Join(err, f.gateway.close())
	}
	return errors.Join(err, f.bench.close())
}

// reportTrials reports the results of all trials, and the memory of the processes.
func (f *fair) reportTrials(answered, settled, drained *series) error {
	api := &series{Name: "memory of the API at its peak", Unit: "MB", Values: []float64{f.api.peakMemory()}}
	worker := &series{Name: "memory of the worker at its peak", Unit: "MB", Values: []float64{f.worker.peakMemory()}}
	sorted := settled.sorted()
	// A batch may wait for a running call of the rail, and then for its own.
	slow := -2 * float64(f.latency.Milliseconds())
	return f.report([]*series{answered, settled, drained, api, worker}, []ratio{
		{Name: "submission to settled, p95", Value: sorted[(95*len(sorted)+99)/100-1], Target: slow - 500, Unit: "ms"},
		{Name: "submission to settled, slowest", Value: settled.max(), Target: slow - 2000, Unit: "ms"},
		{Name: "memory of the worker", Value: worker.max(), Target: -100, Unit: "MB"},
		{Name: "memory of the API", Value: api.max(), Target: -100, Unit: "MB"},
	})
}

// awaitFirst waits until the worker has settled its first rows.
func (f *fair) awaitFirst(ctx context.Context) error {
	return await(ctx, 20*time.Millisecond, func() (bool, error) {
		_, settled, err := f.counts(ctx)
		return settled > 0, errors.Join(err, checkRunning(f.api, f.worker))
	})
}

// trial submits a small batch of the second partner through p. It measures the time until the
// receipt and until the batch is settled, and how many rows of the other partner settle meanwhile.
func (f *fair) trial(ctx context.Context, p *batchClient, answered, settled, drained *series) error {
	if err := f.topUp(ctx, f.sites[:1], f.backlog); err != nil {
		return err
	}
	if err := wait(ctx, rand.N(maxTrialPause)); err != nil { // not a secret
		return err
	}
	_, before, err := f.counts(ctx)
	if err != nil {
		return err
	}
	reference := fmt.Sprint("small ", len(settled.Values))
	body := f.batchBody(reference, f.small)
	began := time.Now()
	took, err := p.submit(ctx, body)
	if err != nil {
		return err
	}
	const query = "SELECT settled_at IS NOT NULL FROM batches WHERE site_id = ? AND batch_reference = ?"
	err = await(ctx, 5*time.Millisecond, func() (done bool, err error) {
		err = f.store.DB().NewRaw(query, f.sites[1].ID, reference).Scan(ctx, &done)
		return done, err
	})
	answered.add(took.Seconds() * 1000)
	settled.add(time.Since(began).Seconds() * 1000)
	_, after, countErr := f.counts(ctx)
	drained.add(float64(after - before - f.small))
	return errors.Join(err, countErr)
}
