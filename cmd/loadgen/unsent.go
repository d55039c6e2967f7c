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

func unsentCommand(out io.Writer) *cobra.Command {
	u := unsent{partners: partners{bench: bench{out: out}}}
	cmd := u.command("unsent",
		"Measure how long a worker takes to close the rows left unsent when the time for attempts ends", 1,
		u.run, u.close)
	cmd.Flags().IntVar(&u.rows, "rows", 1_000_000, "number of rows to submit")
	cmd.Flags().Float64Var(&u.rate, "rate", 10, "rate limit of the rail, in requests per second")
	cmd.Flags().DurationVar(&u.warmUp, "warm-up", 5*time.Second, "time under load before the time for attempts ends")
	u.addSvcFlag(cmd)
	return cmd
}

// unsent measures how long a `svc worker` takes to close rows that it could not send in time. The
// rail has a low rate limit. So nearly every row is unsent when the time for attempts ends, which
// is models.LastAttemptBefore before the deadline.
type unsent struct {
	partners
	rows    int           // of each run
	all     int           // rows of all runs so far
	rate    float64       // limit of the rail, in requests per second
	warmUp  time.Duration // under load, before the time for attempts ends
	gateway *gateway
	worker  *process
}

func (u *unsent) run(ctx context.Context) error {
	if err := u.open(ctx); err != nil {
		return err
	}
	if err := u.addPartners(ctx, benchSites); err != nil {
		return err
	}
	var err error
	if u.gateway, err = u.startGateway(ctx, 0); err != nil {
		return err
	}
	closed := &series{Name: "from the end of the time for attempts until no row is unsent", Unit: "s"}
	for range u.runs {
		took, err := u.measure(ctx)
		if err != nil {
			return err
		}
		closed.add(took.Seconds())
	}
	return u.report([]*series{closed}, []ratio{{
		Name: "until no row is unsent, slowest", Value: closed.max(), Target: -models.LastAttemptBefore.Seconds(),
		Unit: "s",
	}})
}

// measure submits rows, starts a worker, and moves the clock to the end of the time for attempts.
// It waits until every row is settled. It returns the time from that end until no row was unsent.
func (u *unsent) measure(ctx context.Context) (time.Duration, error) {
	u.all += u.rows
	if err := u.submit(ctx, u.rows); err != nil {
		return 0, err
	}
	variables := append(u.gateway.variables(), fmt.Sprintf("SVC_RAIL_RATE=%g", u.rate))
	workers, err := u.startWorkers(1, variables...)
	if err != nil {
		return 0, err
	}
	u.worker = workers[0]
	if err := wait(ctx, u.warmUp); err != nil {
		return 0, err
	}
	if _, err := u.store.AdvanceClock(ctx, models.SettleWithin-models.LastAttemptBefore); err != nil {
		return 0, err
	}
	began := time.Now()
	err = await(ctx, 100*time.Millisecond, func() (closed bool, err error) {
		err = u.store.DB().NewRaw(
			"SELECT NOT EXISTS (SELECT FROM batch_rows WHERE state = 'pending')").Scan(ctx, &closed)
		return closed, err
	})
	took := time.Since(began)
	if err := errors.Join(err, u.awaitSettled(ctx), terminateAll(u.worker)); err != nil {
		return 0, err
	}
	u.worker = nil
	return took, u.verify(ctx)
}

// verify checks that every row was settled in time, and that the rail was not called for unsent
// rows, which timed out. Only rows with another outcome than success may have caused a look-up.
func (u *unsent) verify(ctx context.Context) error {
	var late, timedOut, succeeded, other int
	err := u.store.DB().NewRaw(`
SELECT count(*) FILTER (WHERE r.settled_at > b.settle_by),
       count(*) FILTER (WHERE r.outcome = 'timedOut' AND r.attempts = 0),
    count(*) FILTER (WHERE r.outcome = 'succeeded'),
    count(*) FILTER (WHERE r.outcome NOT IN ('timedOut', 'succeeded') OR r.outcome = 'timedOut' AND r.attempts > 0)
FROM batches b JOIN batch_rows r ON r.site_id = b.site_id AND r.batch_id = b.id`).Scan(ctx, &late, &timedOut,
		&succeeded, &other)
	if err != nil {
		return err
	}
	debited, lookedUp := u.gateway.count(), u.gateway.lookedUpCount()
	if !u.json {
		fmt.Fprintf(u.out, "%d rows timed out unsent, %d succeeded, %d have other outcomes; "+
			"the rail has %d debits and %d look-ups of other keys\n", timedOut, succeeded, other, debited, lookedUp)
	}
	if late > 0 || debited != succeeded || lookedUp > other || timedOut+succeeded+other != u.all {
		return fmt.Errorf("%d rows were late; %d debits for %d succeeded rows; %d look-ups for %d rows; "+
			"%d of %d rows are accounted for",
			late, debited, succeeded, lookedUp, other, timedOut+succeeded+other, u.all)
	}
	return nil
}

func (u *unsent) close() error {
	err := terminateAll(u.worker)
	if u.gateway != nil {
		err = errors.Join(err, u.gateway.close())
	}
	return errors.Join(err, u.bench.close())
}
