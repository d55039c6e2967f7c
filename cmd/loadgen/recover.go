package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func recoverCommand(out io.Writer) *cobra.Command {
	r := recovery{partners: partners{bench: bench{out: out}}}
	cmd := r.command("recover",
		"Measure how soon work continues when a worker is killed or terminated, and when Redis is flushed", 5,
		r.run, r.close)
	cmd.Flags().IntVar(&r.backlog, "rows", 20_000,
		"number of pending rows, kept constant, when a worker is killed and Redis is flushed")
	cmd.Flags().IntVar(&r.rate, "rate", 1000, "rows submitted per second when a worker is terminated")
	cmd.Flags().DurationVar(&r.latency, "latency", 50*time.Millisecond, "latency of the rail")
	cmd.Flags().DurationVar(&r.warmUp, "warm-up", 3*time.Second, "time under load before a fault")
	r.addSvcFlag(cmd)
	return cmd
}

// recovery measures how soon three processes of `svc worker` continue their work after a fault: a
// worker is killed or terminated, or Redis loses its data. The workers debit over HTTP.
type recovery struct {
	partners
	backlog, rate   int           // open rows; rows submitted per second for terminate
	latency, warmUp time.Duration // of the rail; time under load before a fault

	gateway *gateway
	workers []*process
}

// recoveryWorkers is the number of workers of the fleet.
const recoveryWorkers = 3

func (r *recovery) run(ctx context.Context) error {
	if r.rate < 1 {
		return errors.New("--rate must be at least 1")
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	killed := &series{Name: "kill -9: until all rows that were in flight are settled", Unit: "s"}
	redispatched := &series{Name: "FLUSHALL: until everything in flight is dispatched again", Unit: "s"}
	gap := &series{Name: "FLUSHALL: longest time without a debit", Unit: "s"}
	terminated := &series{Name: "SIGTERM: from due to the first attempt, slowest row", Unit: "s"}
	for range r.runs {
		if err := r.underLoad(ctx, func() error {
			return errors.Join(r.kill(ctx, killed), r.flush(ctx, redispatched, gap))
		}); err != nil {
			return errors.Join(err, r.workerLogs())
		}
		if err := r.terminate(ctx, terminated); err != nil {
			return errors.Join(err, r.workerLogs())
		}
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	memory := &series{Name: "memory of a worker at its peak", Unit: "MB"}
	for _, w := range r.workers {
		memory.add(w.peakMemory())
	}
	return r.report([]*series{killed, redispatched, gap, terminated, memory}, []ratio{
		{Name: "kill -9, slowest", Value: killed.max(), Target: -30, Unit: "s"},
		{Name: "FLUSHALL detected, slowest", Value: redispatched.max(), Target: -2, Unit: "s"},
		{Name: "FLUSHALL, longest time without a debit", Value: gap.max(), Target: -2, Unit: "s"},
		{Name: "SIGTERM, from due to the first attempt, slowest", Value: terminated.max(), Target: -2, Unit: "s"},
		{Name: "memory of a worker", Value: memory.max(), Target: -100, Unit: "MB"},
	})
}

// start starts the servers, the gateway and the workers.
func (r *recovery) start(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.addPartners(ctx, benchSites); err != nil {
		return err
	}
	var err error
	if r.gateway, err = r.startGateway(ctx, r.latency); err != nil {
		return err
	}
	r.workers, err = r.startWorkers(recoveryWorkers, r.gateway.variables()...)
	return err
}

func (r *recovery) close() error {
	err := terminateAll(r.workers...)
	if r.gateway != nil {
		err = errors.Join(err, r.gateway.close())
	}
	return errors.Join(err, r.bench.close())
}

// workerLogs returns the last part of each worker's log, as an error.
func (r *recovery) workerLogs() error {
	var errs []error
	for _, w := range r.workers {
		errs = append(errs, w.stderrTail())
	}
	return errors.Join(errs...)
}

// underLoad calls do while the workers have a constant backlog, and then waits until all rows are
// settled.
func (r *recovery) underLoad(ctx context.Context, do func() error) error {
	load, err := r.feed(ctx, r.backlog)
	if err != nil {
		return err
	}
	err = r.awaitDebits(ctx)
	if err == nil {
		err = do()
	}
	return errors.Join(err, load.end(), r.awaitSettled(ctx))
}

// awaitDebits waits until the workers debit, and then for the warm-up time.
func (r *recovery) awaitDebits(ctx context.Context) error {
	before := r.gateway.count()
	err := await(ctx, 20*time.Millisecond, func() (bool, error) {
		return r.gateway.count() > before, checkRunning(r.workers...)
	})
	if err != nil {
		return err
	}
	return wait(ctx, r.warmUp)
}

// recordInFlight records the tasks that are in flight, in the table was_in_flight.
func (r *recovery) recordInFlight(ctx context.Context) error {
	if err := r.exec(ctx, "DROP TABLE IF EXISTS was_in_flight"); err != nil {
		return err
	}
	return r.exec(ctx, "CREATE TABLE was_in_flight AS SELECT id, epoch FROM outbox WHERE dispatched_at IS NOT NULL")
}

// awaitRecorded waits until no recorded task meets the SQL condition. In the condition, f is the
// row of was_in_flight, and o the task's row of the outbox. Finished tasks have none.
func (r *recovery) awaitRecorded(ctx context.Context, condition string) error {
	query := "SELECT NOT EXISTS (SELECT FROM was_in_flight f JOIN outbox o ON o.id = f.id AND " + condition + ")"
	return await(ctx, 10*time.Millisecond, func() (gone bool, err error) {
		err = r.store.DB().NewRaw(query).Scan(ctx, &gone)
		return gone, errors.Join(err, checkRunning(r.workers...))
	})
}

// kill kills a worker, and waits until all tasks that were in flight are finished. These include
// all tasks of the killed worker, whether it had claimed, enqueued or fetched them. The time until
// then is added to the series. Then a new worker replaces the killed one.
func (r *recovery) kill(ctx context.Context, to *series) error {
	victim := r.workers[0]
	r.workers = r.workers[1:]
	began := time.Now()
	if err := victim.kill(); err != nil {
		return err
	}
	// Meanwhile the last statements of the killed worker end in Postgres.
	if err := wait(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	if err := r.recordInFlight(ctx); err != nil {
		return err
	}
	if err := r.awaitRecorded(ctx, "true"); err != nil {
		return err
	}
	to.add(time.Since(began).Seconds())
	return r.replace()
}

// replace starts a worker in place of one that has ended.
func (r *recovery) replace() error {
	started, err := r.startWorkers(1, r.gateway.variables()...)
	r.workers = append(r.workers, started...)
	return err
}

// flush deletes all data of Redis. It measures the time until all tasks that were in flight are
// dispatched again or finished, and the longest time without a debit.
func (r *recovery) flush(ctx context.Context, redispatched, gap *series) error {
	began := time.Now()
	if err := r.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	r.gateway.resetGap(time.Now())
	if err := r.recordInFlight(ctx); err != nil {
		return err
	}
	if err := r.awaitRecorded(ctx, "o.epoch = f.epoch AND o.dispatched_at IS NOT NULL"); err != nil {
		return err
	}
	redispatched.add(time.Since(began).Seconds())
	if err := wait(ctx, r.warmUp); err != nil {
		return err
	}
	gap.add(r.gateway.longestGap(time.Now()).Seconds())
	return nil
}

// terminate terminates a worker while rows are submitted at a rate that the workers can serve. It
// measures the longest time from the submission of a row to its first debit.
func (r *recovery) terminate(ctx context.Context, to *series) error {
	const rows = 100
	before := r.submitted
	tick := time.NewTicker(rows * time.Second / time.Duration(r.rate))
	defer tick.Stop()
	ended := make(chan error, 1)
	// At a low rate, the worker is terminated only after twice the warm-up time.
	for began, terminated := time.Now(), false; !terminated || time.Since(began) < 2*r.warmUp; {
		if _, err := r.store.SubmitBatch(ctx, r.newBatch(r.sites[r.submitted%len(r.sites)], rows)); err != nil {
			return err
		}
		if !terminated && time.Since(began) > r.warmUp {
			terminated = true
			go func() { ended <- r.workers[0].terminate() }()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-ended:
		if err := errors.Join(err, r.awaitSettled(ctx)); err != nil {
			return err
		}
	}
	r.workers = r.workers[1:]
	slowest, err := r.slowestAttempt(ctx, before)
	to.add(slowest.Seconds())
	return errors.Join(err, r.replace())
}

// slowestAttempt returns the longest time from the submission of a row to its first debit. It
// leaves out the rows of the first skip batches.
func (r *recovery) slowestAttempt(ctx context.Context, skip int) (slowest time.Duration, err error) {
	rows, err := r.store.DB().QueryContext(ctx, `
SELECT b.site_id, b.batch_reference, b.generation, b.submitted_at, r.row_reference
FROM batches b JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id WHERE b.batch_reference::int > ?`, skip)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var site models.SiteID
		var batch, row string
		var generation int
		var submitted models.Millis
		if err := rows.Scan(&site, &batch, &generation, &submitted, &row); err != nil {
			return 0, err
		}
		at, known := r.gateway.debitedAt(models.NewBatchKey(site, batch, generation).Row(row))
		if !known {
			return 0, fmt.Errorf("row %s of batch %s was never debited", row, batch)
		}
		slowest = max(slowest, at.Sub(time.UnixMilli(int64(submitted))))
	}
	return slowest, rows.Err()
}

// verify checks that every row has succeeded, and that the gateway has exactly one debit for each.
func (r *recovery) verify(ctx context.Context) error {
	var rows, succeeded int
	err := r.store.DB().NewRaw("SELECT sum(row_count), sum(succeeded_count) FROM batches").Scan(ctx, &rows, &succeeded)
	if err == nil && (succeeded != rows || r.gateway.count() != rows) {
		err = fmt.Errorf("of %d rows %d have succeeded, and the gateway has %d debits",
			rows, succeeded, r.gateway.count())
	}
	return err
}
