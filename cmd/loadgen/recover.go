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
	cmd := r.command("recover", "Measure how soon work goes on when a worker is killed, a worker is asked to end, and Redis is flushed", 5,
		r.run, r.close)
	cmd.Flags().IntVar(&r.backlog, "rows", 20_000, "rows that are always pending while a worker is killed and Redis is flushed")
	cmd.Flags().IntVar(&r.rate, "rate", 1000, "rows a second that come in while a worker is asked to end")
	cmd.Flags().DurationVar(&r.latency, "latency", 50*time.Millisecond, "latency of the rail")
	cmd.Flags().DurationVar(&r.warmUp, "warm-up", 3*time.Second, "time at work before anything happens")
	r.usesSvc(cmd)
	return cmd
}

// recovery measures three `svc worker` that debit through HTTP, while something dies.
type recovery struct {
	partners
	backlog, rate   int
	latency, warmUp time.Duration

	gateway *gateway
	workers []*process
}

// recoveryWorkers are the workers of the fleet.
const recoveryWorkers = 3

func (r *recovery) run(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	killed := &series{Name: "kill -9: until all rows that were in flight are settled", Unit: "s"}
	noticed := &series{Name: "FLUSHALL: until everything in flight goes out again", Unit: "s"}
	gap := &series{Name: "FLUSHALL: longest time without a debit", Unit: "s"}
	ended := &series{Name: "SIGTERM: from due to the first attempt, slowest row", Unit: "s"}
	for range r.runs {
		if err := r.underLoad(ctx, func() error {
			return errors.Join(r.kill(ctx, killed), r.flush(ctx, noticed, gap))
		}); err != nil {
			return errors.Join(err, r.complaints())
		}
		if err := r.terminate(ctx, ended); err != nil {
			return errors.Join(err, r.complaints())
		}
	}
	if err := r.prove(ctx); err != nil {
		return err
	}
	memory := &series{Name: "memory of a worker at its peak", Unit: "MB"}
	for _, w := range r.workers {
		memory.add(w.peakMemory())
	}
	return r.report([]*series{killed, noticed, gap, ended, memory}, []ratio{
		{Name: "kill -9, slowest", Value: killed.most(), Target: -30, Unit: "s"},
		{Name: "FLUSHALL noticed, slowest", Value: noticed.most(), Target: -2, Unit: "s"},
		{Name: "FLUSHALL, longest time without a debit", Value: gap.most(), Target: -2, Unit: "s"},
		{Name: "SIGTERM, from due to the first attempt, slowest", Value: ended.most(), Target: -2, Unit: "s"},
		{Name: "memory of a worker", Value: memory.most(), Target: -100, Unit: "MB"},
	})
}

func (r *recovery) start(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.addPartners(ctx, drainSites); err != nil {
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

// complaints are what the workers have logged, for when something went wrong.
func (r *recovery) complaints() error {
	var errs []error
	for _, w := range r.workers {
		errs = append(errs, w.said())
	}
	return errors.Join(errs...)
}

// underLoad does something while the fleet has more to do than it can, and then lets it come to the end.
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

// awaitDebits waits until the fleet is at work, and for its warm-up.
func (r *recovery) awaitDebits(ctx context.Context) error {
	before := r.gateway.count()
	if err := await(ctx, 20*time.Millisecond, func() (bool, error) { return r.gateway.count() > before, ended(r.workers...) }); err != nil {
		return err
	}
	return wait(ctx, r.warmUp)
}

// remember keeps which tasks are in flight now.
func (r *recovery) remember(ctx context.Context) error {
	if err := r.exec(ctx, "DROP TABLE IF EXISTS was_in_flight"); err != nil {
		return err
	}
	return r.exec(ctx, "CREATE TABLE was_in_flight AS SELECT id, epoch FROM outbox WHERE dispatched_at IS NOT NULL")
}

// awaitRemembered waits until no remembered task is such any more.
func (r *recovery) awaitRemembered(ctx context.Context, such string) error {
	return await(ctx, 10*time.Millisecond, func() (gone bool, err error) {
		err = r.store.DB().NewRaw("SELECT NOT EXISTS (SELECT FROM was_in_flight f JOIN outbox o ON o.id = f.id AND "+such+")").Scan(ctx, &gone)
		return gone, errors.Join(err, ended(r.workers...))
	})
}

// kill kills one of the workers, and another one takes its place in the fleet once all is settled that was in flight: what the
// killed one held is among it, whether it had claimed it, fetched it, or only sent it to Redis.
func (r *recovery) kill(ctx context.Context, to *series) error {
	victim := r.workers[0]
	r.workers = r.workers[1:]
	began := time.Now()
	if err := victim.kill(); err != nil {
		return err
	}
	if err := wait(ctx, 100*time.Millisecond); err != nil { // what it had sent to Postgres is done there
		return err
	}
	if err := r.remember(ctx); err != nil {
		return err
	}
	if err := r.awaitRemembered(ctx, "true"); err != nil {
		return err
	}
	to.add(time.Since(began).Seconds())
	return r.replace()
}

func (r *recovery) replace() error {
	started, err := r.startWorkers(1, r.gateway.variables()...)
	r.workers = append(r.workers, started...)
	return err
}

// flush empties Redis.
func (r *recovery) flush(ctx context.Context, noticed, gap *series) error {
	began := time.Now()
	if err := r.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	r.gateway.watch(time.Now())
	if err := r.remember(ctx); err != nil {
		return err
	}
	if err := r.awaitRemembered(ctx, "o.epoch = f.epoch AND o.dispatched_at IS NOT NULL"); err != nil {
		return err
	}
	noticed.add(time.Since(began).Seconds())
	if err := wait(ctx, r.warmUp); err != nil {
		return err
	}
	gap.add(r.gateway.longestGap(time.Now()).Seconds())
	return nil
}

// terminate asks a worker to end while rows come in that the fleet can well serve.
func (r *recovery) terminate(ctx context.Context, to *series) error {
	const rows = 100
	first := r.submitted
	tick := time.NewTicker(rows * time.Second / time.Duration(r.rate))
	defer tick.Stop()
	leaving := make(chan error, 1)
	for began, asked := time.Now(), false; time.Since(began) < 2*r.warmUp; {
		if _, err := r.store.SubmitBatch(ctx, r.newBatch(r.sites[r.submitted%len(r.sites)], rows)); err != nil {
			return err
		}
		if !asked && time.Since(began) > r.warmUp {
			asked = true
			go func() { leaving <- r.workers[0].terminate() }()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	if err := errors.Join(<-leaving, r.awaitSettled(ctx)); err != nil {
		return err
	}
	r.workers = r.workers[1:]
	slowest, err := r.slowestAttempt(ctx, first)
	to.add(slowest.Seconds())
	return errors.Join(err, r.replace())
}

// slowestAttempt is the longest time from the submission of a row to its first debit, of the batches after the first so many.
func (r *recovery) slowestAttempt(ctx context.Context, first int) (slowest time.Duration, err error) {
	rows, err := r.store.DB().QueryContext(ctx, `
SELECT b.site_id, b.batch_reference, b.generation, b.submitted_at, r.row_reference
FROM batches b JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id WHERE b.batch_reference::int > ?`, first)
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
		at, known := r.gateway.when(models.NewBatchKey(site, batch, generation).Row(row))
		if !known {
			return 0, fmt.Errorf("row %s of batch %s was never debited", row, batch)
		}
		slowest = max(slowest, at.Sub(time.UnixMilli(int64(submitted))))
	}
	return slowest, rows.Err()
}

// prove checks that every row has succeeded, and that the gateway has a debit for each and no other.
func (r *recovery) prove(ctx context.Context) error {
	var rows, succeeded int
	err := r.store.DB().NewRaw("SELECT sum(row_count), sum(succeeded_count) FROM batches").Scan(ctx, &rows, &succeeded)
	if err == nil && (succeeded != rows || r.gateway.count() != rows) {
		err = fmt.Errorf("of %d rows %d have succeeded, and the gateway has %d debits", rows, succeeded, r.gateway.count())
	}
	return err
}
