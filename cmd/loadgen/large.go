package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func largeCommand(out io.Writer) *cobra.Command {
	l := large{partners: partners{bench: bench{out: out}}}
	cmd := l.command("large",
		"Measure how fast one svc worker drains the backlog of a single partner, against that of four partners", 5,
		l.run, l.close)
	cmd.Flags().IntVar(&l.rows, "rows", 200_000, "rows of each backlog, in batches of 1000")
	cmd.Flags().IntVar(&l.references, "reference-tasks", 20_000, "tasks of each run of plain Asynq and of River")
	cmd.Flags().StringVar(&l.river, "river", "",
		"path of the program that measures River: (cd .ci/tools && go build -o PATH ./river); none without it")
	l.addSvcFlag(cmd)
	return cmd
}

// large measures how fast the backlog of one large partner drains, compared with a backlog of four
// partners and with other task queues. Batches come through HTTP to `svc api`. One `svc worker`
// debits them on the sandbox rail.
type large struct {
	partners
	rows, references int    // of each backlog; tasks of each run of another queue
	river            string // path of the program that measures River; may be ""

	api     *process
	clients []*batchClient // one for each Site
}

func (l *large) run(ctx context.Context) error {
	if err := l.start(ctx); err != nil {
		return err
	}
	update := &series{Name: "Asynq, one update a task", Unit: "tasks/s"}
	river := &series{Name: "River, one update a job", Unit: "jobs/s"}
	four, one := newDrainSeries("four partners"), newDrainSeries("one partner")
	steps := []func() error{
		func() error { return l.reference(ctx, update, l.asynqUpdate) },
		func() error { return l.measure(ctx, l.clients, four) },
		func() error { return l.measure(ctx, l.clients[:1], one) },
	}
	if l.river != "" {
		steps = append(steps, func() error { return l.reference(ctx, river, l.riverUpdate) })
	}
	for range l.runs { // in rotation, so that a drift of the machine affects all
		for _, step := range steps {
			if err := errors.Join(l.deleteBatches(ctx), l.checkpoint(ctx), step()); err != nil {
				return err
			}
		}
	}
	engines := []*series{update}
	if l.river != "" {
		engines = append(engines, river)
	}
	return l.report(slices.Concat(engines, four.all(), one.all()), []ratio{
		medianRatio("one partner ÷ four partners", one.rate, four.rate, 0.9),
		medianRatio("one partner ÷ Asynq with an update", one.rate, update, 5),
		medianRatio("one partner ÷ River with an update", one.rate, river, 3),
	})
}

// reference measures the rate of another task queue with measure, and adds it to the series.
func (l *large) reference(
	ctx context.Context, to *series, measure func(ctx context.Context, tasks int) (float64, error),
) error {
	rate, err := measure(ctx, l.references)
	to.add(rate)
	return err
}

// riverUpdate returns the rate at which the task queue River runs jobs that update one row each, in
// jobs per second.
func (l *large) riverUpdate(ctx context.Context, jobs int) (rate float64, err error) {
	cmd := exec.CommandContext(ctx, l.river, l.local.DatabaseURL, strconv.Itoa(jobs))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.river, err)
	}
	_, err = fmt.Sscan(string(out), &rate)
	return rate, err
}

// drainSeries holds the results of draining a backlog with a worker process: its rate, and the CPU
// time of Postgres and of the worker.
type drainSeries struct{ rate, postgres, worker *series }

func (d drainSeries) all() []*series { return []*series{d.rate, d.postgres, d.worker} }

func newDrainSeries(name string) drainSeries {
	return drainSeries{
		rate:     &series{Name: name, Unit: "rows/s"},
		postgres: &series{Name: name + ", CPU time of Postgres", Unit: "µs a row"},
		worker:   &series{Name: name + ", CPU time of the worker", Unit: "µs a row"},
	}
}

// start starts the API, and creates partners with clients.
func (l *large) start(ctx context.Context) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	if err := l.addPartners(ctx, benchSites); err != nil {
		return err
	}
	var base string
	var err error
	if l.api, base, err = l.startAPI(); err != nil {
		return err
	}
	l.clients, err = l.newBatchClients(ctx, base, submitConcurrency)
	return err
}

func (l *large) close() error { return errors.Join(terminateAll(l.api), l.bench.close()) }

// measure submits a backlog through the clients in rotation, and then measures how a new worker
// drains it.
func (l *large) measure(ctx context.Context, clients []*batchClient, to drainSeries) error {
	submitted := l.submitThrough(ctx, clients, l.rows, models.MaxBatchRows)
	if err := errors.Join(submitted, l.checkpoint(ctx)); err != nil {
		return err
	}
	workers, err := l.startWorkers(1)
	if err != nil {
		return err
	}
	return errors.Join(l.drain(ctx, workers[0], to), terminateAll(workers...))
}

// drain adds the results of the worker to the series. It measures from about the first settled row
// to the last.
func (l *large) drain(ctx context.Context, worker *process, to drainSeries) error {
	var before int
	err := await(ctx, time.Millisecond, func() (_ bool, err error) {
		_, before, err = l.counts(ctx)
		return before > 0, errors.Join(err, checkRunning(worker))
	})
	if err != nil {
		return err
	}
	began, pid := time.Now(), l.local.Postgres.PID()
	postgres, own := treeCPUTime(pid), cpuTime(worker.cmd.Process.Pid)
	if err := l.awaitSettled(ctx); err != nil {
		return err
	}
	took, rows := time.Since(began), float64(l.rows-before)
	to.rate.add(rows / took.Seconds())
	to.postgres.add(float64((treeCPUTime(pid) - postgres).Microseconds()) / rows)
	to.worker.add(float64((cpuTime(worker.cmd.Process.Pid) - own).Microseconds()) / rows)
	return nil
}
