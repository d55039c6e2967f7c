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
	cmd := u.command("unsent", "Measure how the deadline closes a backlog that was too large for the rail", 1,
		u.run, u.close)
	cmd.Flags().IntVar(&u.rows, "rows", 1_000_000, "number of rows to submit")
	cmd.Flags().Float64Var(&u.rate, "rate", 10, "rate limit of the rail, in requests per second")
	cmd.Flags().DurationVar(&u.warmUp, "warm-up", 5*time.Second, "time under load before the last half hour begins")
	u.addSvcFlag(cmd)
	return cmd
}

// unsent measures a `svc worker` on a rail with a low rate limit, when the time for attempts ends
// with nearly every row unsent.
type unsent struct {
	partners
	rows    int
	rate    float64
	warmUp  time.Duration
	gateway *gateway
	workers []*process
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
	closed := &series{Name: "from the beginning of the last half hour until no row is unsent", Unit: "s"}
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

// measure moves the clock to the last half hour, and waits until the unsent rows are closed and the
// others settled.
func (u *unsent) measure(ctx context.Context) (time.Duration, error) {
	if err := u.submit(ctx, u.rows); err != nil {
		return 0, err
	}
	variables := append(u.gateway.variables(), fmt.Sprintf("SVC_RAIL_RATE=%g", u.rate))
	workers, err := u.startWorkers(1, variables...)
	if err != nil {
		return 0, err
	}
	u.workers = append(u.workers, workers...)
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
	if err := errors.Join(err, u.awaitSettled(ctx)); err != nil {
		return 0, err
	}
	return took, u.verify(ctx)
}

// verify checks that every row was settled in time, that unsent rows timed out, and that the rail
// was not called for them.
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
	if late > 0 || debited != succeeded || lookedUp > other || timedOut+succeeded+other != u.rows*u.runs {
		return fmt.Errorf("%d rows were late; %d of %d are accounted for",
			late, timedOut+succeeded+other, u.rows*u.runs)
	}
	return nil
}

func (u *unsent) close() error {
	err := terminateAll(u.workers...)
	if u.gateway != nil {
		err = errors.Join(err, u.gateway.close())
	}
	return errors.Join(err, u.bench.close())
}
