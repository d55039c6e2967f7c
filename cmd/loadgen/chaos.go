package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func chaosCommand(out io.Writer) *cobra.Command {
	c := chaos{out: out}
	var failOver bool
	var plan haPlan
	var deployment string
	cmd := &cobra.Command{
		Use: "chaos", Args: cobra.NoArgs,
		Short: "Inject faults into a running fleet, and prove that nothing was lost or debited twice",
		Long: `Runs an API, three workers and a payment gateway as processes of their own, on a private PostgreSQL
and a private Redis. Partners submit, resubmit and cancel batches. Meanwhile processes are killed and stopped,
servers restarted, wires cut, torn and slowed, answers lost, tasks doubled and the clock moved. Then everything
must settle, and the books must agree with the gateway's own list.

With --ha, the primary of a PostgreSQL pair is killed instead and its standby promoted, again and again. Some
standbys lag, so that acknowledged commits are lost. The gateway has a database of its own, which never fails:
the books must agree with its list.

With --redis, masters of a Redis deployment are killed instead, again and again. Some replicas lag, so that tasks
are lost. In a Cluster, slots move too. Partners must see no error.

The seed and the flags determine the faults and their times. The exit code is 1 if anything was lost, debited
twice, or shown wrongly.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !failOver && plan.Redis == "" {
				return c.run(cmd.Context())
			}
			run := ha{out: out, json: c.json, svc: c.svc, settleWithin: c.settleWithin, deployment: deployment,
				haPlan: plan}
			run.Seed, run.Rows = c.drawnSeed(), c.Rows
			return run.run(cmd.Context())
		},
	}
	cmd.Flags().Uint64Var(&c.Seed, "seed", 0, "seed of the schedule; 0 draws one")
	cmd.Flags().IntVar(&c.Faults, "faults", 100, "number of faults")
	cmd.Flags().DurationVar(&c.Every, "every", time.Second, "mean time between two faults")
	cmd.Flags().IntVar(&c.Rows, "rows", 100_000, "number of rows that partners submit")
	cmd.Flags().BoolVar(&failOver, "ha", false,
		"kill the primary PostgreSQL and promote its standby, instead of the faults")
	cmd.Flags().IntVar(&plan.Promotions, "promotions", 20, "with --ha: number of promotions")
	cmd.Flags().IntVar(&plan.Loss, "loss", 10, "with --ha: number of promotions that lose acknowledged commits")
	cmd.Flags().BoolVar(&plan.Proxy, "proxy", false,
		"with --ha: reach the primary through a proxy instead of a URL with both addresses")
	cmd.Flags().StringVar(&plan.Redis, "redis", "",
		"kill masters of a Redis deployment instead: sentinel or cluster, with the other flags of --ha")
	cmd.Flags().StringVar(&deployment, "deployment", "",
		"with --ha: fail over the topology that deploy/ha/up started in this data folder; its database must be fresh")
	cmd.Flags().IntVar(&plan.Payments, "payments", 2000, "with --ha: number of payment intents to create")
	cmd.Flags().StringSliceVar(&c.Kinds, "kinds", nil, "inject only these kinds of fault")
	cmd.Flags().DurationVar(&c.settleWithin, "settle-within", 5*time.Minute,
		"time after the last fault and the last submission within which everything must settle")
	cmd.Flags().StringVar(&c.svc, "svc", "", "path of the svc binary (default: beside this program)")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&c.scheduleOnly, "schedule", false, "print the schedule and exit")
	return cmd
}

// chaos is one run of a fleet of processes and servers under faults. Partners submit batches
// meanwhile. In the end everything must settle, and nothing may be lost or debited twice.
type chaos struct {
	out          io.Writer
	json         bool
	scheduleOnly bool          // print the schedule and exit
	svc          string        // path of the svc binary
	settleWithin time.Duration // time for everything to settle after the faults and submissions
	chaosPlan

	fleet    *chaosFleet
	schedule []fault

	mu        sync.Mutex
	performed []fault // faults that were injected
	skipped   int     // number of faults that found nothing to act on
}

// chaosPlan holds the parameters that determine a run.
type chaosPlan struct {
	Seed   uint64        `json:"seed"`            // of the schedule and of the partners' choices
	Faults int           `json:"faults"`          // number of faults
	Every  time.Duration `json:"every"`           // mean time between two faults, in ns in JSON
	Rows   int           `json:"rows"`            // number of rows that all partners submit
	Kinds  []string      `json:"kinds,omitempty"` // kinds of fault to inject; empty for all
}

// errBroken reports that a run found breaches of the service's promises. The command has already
// printed them.
var errBroken = errors.New("the service broke its promises")

// drawnSeed returns the seed of the flag. Without one, it draws a seed at random.
func (c *chaos) drawnSeed() uint64 {
	if c.Seed != 0 {
		return c.Seed
	}
	return 1 + rand.Uint64N(1_000_000) // not a secret
}

func (c *chaos) run(ctx context.Context) error {
	c.Seed = c.drawnSeed()
	var err error
	if c.schedule, err = chaosSchedule(c.Seed, c.Kinds, c.Faults, c.Every); err != nil {
		return err
	}
	if c.scheduleOnly {
		return c.printSchedule(c.out)
	}
	if c.svc, err = (&bench{svc: c.svc}).binary(); err != nil {
		return err
	}
	c.fleet = &chaosFleet{svc: c.svc}
	report, err := c.execute(ctx)
	if err := errors.Join(err, c.fleet.close()); err != nil {
		return err
	}
	if len(report.Broken) > 0 {
		if report.Logs, err = c.fleet.keepTranscripts(); err != nil {
			return err
		}
	}
	if err := c.print(report); err != nil || len(report.Broken) == 0 {
		return err
	}
	return errBroken
}

// execute runs the fleet, the faults and the partners, and audits the result.
func (c *chaos) execute(ctx context.Context) (chaosReport, error) {
	c.printf("seed %d: %d faults and %d rows in about %s", c.Seed, c.Faults, c.Rows, time.Duration(c.Faults)*c.Every)
	if err := c.fleet.open(ctx, c.Seed, c.Rows, time.Duration(c.Faults)*c.Every); err != nil {
		return chaosReport{}, err
	}
	began := time.Now()
	stopReporting := c.reportProgress(ctx)
	err := c.runUnderFaults(ctx)
	stopReporting()
	if err != nil {
		return chaosReport{}, err
	}
	unsettled, err := c.settle(ctx)
	if err != nil {
		return chaosReport{}, err
	}
	report := chaosReport{chaosPlan: c.chaosPlan, Took: time.Since(began), Broken: unsettled}
	return report, c.audit(ctx, &report)
}

// runUnderFaults injects the faults while the partners submit. It returns when all faults are over
// and all rows are submitted. It fails if a server dies by itself.
func (c *chaos) runUnderFaults(ctx context.Context) error {
	watch, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	group, ctx := errgroup.WithContext(watch)
	dead := make(chan error, 1)
	go func() {
		select {
		case err := <-c.fleet.database.Died():
			dead <- err
			stopWatching()
		case err := <-c.fleet.cache.Died():
			dead <- err
			stopWatching()
		case <-watch.Done():
			dead <- nil
		}
	}()
	for _, p := range c.fleet.partners {
		group.Go(func() error { return p.run(ctx) })
	}
	began := time.Now()
	for _, f := range c.schedule {
		group.Go(func() error {
			if !sleep(ctx, f.At-time.Since(began)) {
				return nil
			}
			err := c.fleet.inject(ctx, f)
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case errors.Is(err, errNothingInFlight):
				c.skipped++
				c.printf("skipped: %s: %v", f, err)
			case err != nil && ctx.Err() == nil:
				return fmt.Errorf("fault %s: %w", f, err)
			default:
				c.performed = append(c.performed, f)
			}
			return nil
		})
	}
	err := group.Wait()
	stopWatching()
	return errors.Join(<-dead, err)
}

// printf prints a line of progress, unless the output is JSON.
func (c *chaos) printf(format string, args ...any) {
	if !c.json {
		fmt.Fprintf(c.out, format+"\n", args...)
	}
}

// progressInterval is the time between two lines of progress.
const progressInterval = 15 * time.Second

// reportProgress prints the progress every progressInterval, until stop is called.
func (c *chaos) reportProgress(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		_ = every(ctx, progressInterval, func() error {
			c.mu.Lock()
			n := len(c.performed)
			c.mu.Unlock()
			counts := c.fleet.progress()
			c.printf("%d faults, %d rows in %d batches", n, counts.Rows, counts.Batches)
			return nil
		})
	})
	return func() { cancel(); running.Wait() }
}

func (c *chaos) printSchedule(out io.Writer) error {
	if c.json {
		return json.NewEncoder(out).Encode(c.schedule)
	}
	for _, f := range c.schedule {
		fmt.Fprintln(out, f)
	}
	return nil
}
