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
	cmd := &cobra.Command{
		Use: "chaos", Args: cobra.NoArgs,
		Short: "Break whatever can break under a running fleet, and prove that nothing was lost or debited twice",
		Long: `Runs an API, three workers and a payment gateway as processes of their own, on a private PostgreSQL and a private Redis, lets partners
submit, resubmit and cancel batches, and breaks things meanwhile: processes are killed and stopped, servers restarted, wires cut, torn and
slowed, answers lost, tasks doubled, the clock moved. Then everything must settle, and the books are held against the gateway's own list.

With --ha, the primary of a PostgreSQL pair is killed instead and its standby promoted, again and again; some standbys have lagged, so that
acknowledged commits are lost. The gateway has a database of its own, which never fails: its list is the judge.

What breaks when derives from the seed alone. The exit code is 1 if anything was lost, debited twice, or shown otherwise than it is.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !failOver {
				return c.run(cmd.Context())
			}
			run := ha{out: out, json: c.json, svc: c.svc, settleWithin: c.settleWithin, haPlan: plan}
			run.Seed, run.Rows = c.drawnSeed(), c.Rows
			return run.run(cmd.Context())
		},
	}
	cmd.Flags().Uint64Var(&c.Seed, "seed", 0, "what the schedule derives from; 0: draw one")
	cmd.Flags().IntVar(&c.Faults, "faults", 100, "how many faults")
	cmd.Flags().DurationVar(&c.Every, "every", time.Second, "one about every so often")
	cmd.Flags().IntVar(&c.Rows, "rows", 100_000, "how many rows are submitted meanwhile")
	cmd.Flags().BoolVar(&failOver, "ha", false, "kill the primary PostgreSQL and promote its standby; the faults are left out")
	cmd.Flags().IntVar(&plan.Promotions, "promotions", 20, "with --ha: how many promotions")
	cmd.Flags().IntVar(&plan.Loss, "loss", 10, "with --ha: how many of them lose acknowledged commits")
	cmd.Flags().BoolVar(&plan.Proxy, "proxy", false, "with --ha: the service reaches the primary through a proxy; default: by a URL with both addresses")
	cmd.Flags().IntVar(&plan.Payments, "payments", 2000, "with --ha: how many payment intents are created meanwhile")
	cmd.Flags().StringSliceVar(&c.Kinds, "kinds", nil, "only these kinds of fault")
	cmd.Flags().DurationVar(&c.settleWithin, "settle-within", 5*time.Minute, "how long after the last fault all must be settled")
	cmd.Flags().StringVar(&c.svc, "svc", "", "the service's binary; default: svc, beside this one")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&c.only, "schedule", false, "print the schedule, and do nothing")
	return cmd
}

// chaos is one run.
type chaos struct {
	out          io.Writer
	json, only   bool
	svc          string
	settleWithin time.Duration
	chaosPlan

	fleet    *chaosFleet
	schedule []fault

	mu        sync.Mutex
	performed []fault
}

// chaosPlan is what a run can be repeated from.
type chaosPlan struct {
	Seed   uint64        `json:"seed"`
	Faults int           `json:"faults"`
	Every  time.Duration `json:"every"`
	Rows   int           `json:"rows"`
	Kinds  []string      `json:"kinds,omitempty"`
}

// errBroken ends the command with exit code 1.
var errBroken = errors.New("promises were broken")

// drawnSeed is the seed, drawn if none was given.
func (c *chaos) drawnSeed() uint64 {
	if c.Seed != 0 {
		return c.Seed
	}
	return 1 + rand.Uint64N(1_000_000) //nolint:gosec // not a secret
}

func (c *chaos) run(ctx context.Context) error {
	c.Seed = c.drawnSeed()
	var err error
	if c.schedule, err = chaosSchedule(c.Seed, c.Kinds, c.Faults, c.Every); err != nil {
		return err
	}
	if c.only {
		return c.printSchedule(c.out)
	}
	if c.svc, err = (&bench{svc: c.svc}).binary(); err != nil {
		return err
	}
	c.fleet = &chaosFleet{svc: c.svc}
	report, err := c.play(ctx)
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

// play runs the fleet, the faults and the partners, and looks at what has become of it all.
func (c *chaos) play(ctx context.Context) (chaosReport, error) {
	c.say("seed %d: %d faults and %d rows in about %s", c.Seed, c.Faults, c.Rows, time.Duration(c.Faults)*c.Every)
	if err := c.fleet.open(ctx, c.Seed, c.Rows, time.Duration(c.Faults)*c.Every); err != nil {
		return chaosReport{}, err
	}
	began := time.Now()
	stopTelling := c.tell(ctx)
	err := c.disturb(ctx)
	stopTelling()
	if err != nil {
		return chaosReport{}, err
	}
	unsettled, err := c.settle(ctx)
	if err != nil {
		return chaosReport{}, err
	}
	report := chaosReport{chaosPlan: c.chaosPlan, Took: time.Since(began), Broken: unsettled}
	return report, c.examine(ctx, &report)
}

// disturb lets everything break in its time while the partners are at work, and ends when all is mended and submitted.
func (c *chaos) disturb(ctx context.Context) error {
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	group, ctx := errgroup.WithContext(watch)
	dead := make(chan error, 1)
	go func() { // a server that ends by itself is no fault of the schedule's
		select {
		case err := <-c.fleet.database.Died():
			dead <- err
			unwatch()
		case err := <-c.fleet.cache.Died():
			dead <- err
			unwatch()
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
			if err := c.fleet.inject(ctx, f); err != nil && ctx.Err() == nil {
				return fmt.Errorf("fault %s: %w", f, err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.performed = append(c.performed, f)
			return nil
		})
	}
	err := group.Wait()
	unwatch()
	return errors.Join(<-dead, err)
}

// say prints a line of progress, unless JSON is wanted.
func (c *chaos) say(format string, args ...any) {
	if !c.json {
		fmt.Fprintf(c.out, format+"\n", args...)
	}
}

// tellEvery is how often a run says how far it is.
const tellEvery = 15 * time.Second

// tell says now and then how far the run is, until it is stopped.
func (c *chaos) tell(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		for sleep(ctx, tellEvery) {
			c.mu.Lock()
			n := len(c.performed)
			c.mu.Unlock()
			did := c.fleet.progress()
			c.say("%d faults, %d rows in %d batches", n, did.Rows, did.Batches)
		}
	})
	return func() { cancel(); telling.Wait() }
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
