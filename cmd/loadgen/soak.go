package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

func soakCommand(out io.Writer) *cobra.Command {
	s := soak{ha: ha{out: out}}
	cmd := &cobra.Command{
		Use: "soak", Args: cobra.NoArgs,
		Short: "Measure mixed load at half of the capacity during restarts, failovers, a migration and a backup",
		Long: `Run two APIs, two workers, a payment gateway and a primary PostgreSQL with a synchronous
standby. Measure how many requests of the mix the fleet can serve, and offer half of that for the
duration. Meanwhile all processes are replaced one at a time, the primary is killed and its standby
promoted, the schema is migrated, and a backup is taken and verified.

Outside of the failovers every request must succeed; during them the service may answer 503 with
Retry-After. The cancellation of a payment intent from before a failover may be answered with 409
at any later time. At the end everything must be settled as on the gateway, each final status of a
payment intent must have come as one webhook event, and svc admin audit and svc admin reconcile must
be clean. Otherwise the exit code is 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	cmd.Flags().DurationVar(&s.duration, "duration", time.Hour, "duration of the load")
	cmd.Flags().DurationVar(&s.measured, "capacity", 20*time.Second, "duration of the measurement of the capacity")
	cmd.Flags().Float64Var(&s.part, "part", 0.5, "part of the capacity that is offered")
	cmd.Flags().IntVar(&s.restarts, "restarts", 6, "number of rolling restarts, at least 1")
	cmd.Flags().IntVar(&s.failovers, "failovers", 6, "number of failovers")
	cmd.Flags().Uint64Var(&s.Seed, "seed", 0, "seed of the schedule and of the load; 0 draws one")
	cmd.Flags().DurationVar(&s.settleWithin, "settle-within", 5*time.Minute,
		"time after the load within which everything must settle")
	cmd.Flags().StringVar(&s.svc, "svc", "", "path of the svc binary (default: beside this program)")
	cmd.Flags().BoolVar(&s.json, "json", false, "print JSON")
	return cmd
}

// soak is a long run under load, with everything that happens in operation: restarts, failovers, a
// migration and a backup. It checks that requests keep succeeding, and that nothing is lost.
type soak struct {
	ha
	duration, measured  time.Duration // of the load; of the measurement of the capacity
	part                float64       // of the capacity that is offered
	restarts, failovers int

	soakFleet *soakFleet // ha.fleet is the haFleet in it
	load      *soakLoad
	schedule  []soakEvent
	events    map[soakPhase]int // number of events that have happened, by kind
	capacity  float64           // requests per second
	took      time.Duration     // of the load
}

func (s *soak) run(ctx context.Context) (err error) {
	if s.restarts < 1 || s.failovers < 0 || s.part <= 0 || s.part > 1 || s.duration <= 0 {
		return errors.New("--restarts must be at least 1, --part above 0 and at most 1, --duration above 0")
	}
	if s.svc, err = (&bench{svc: s.svc}).binary(); err != nil {
		return err
	}
	s.Seed = (&chaos{chaosPlan: chaosPlan{Seed: s.Seed}}).drawnSeed()
	s.random = rand.New(rand.NewPCG(s.Seed, 1)) // repeatable on purpose
	s.schedule, s.events = soakSchedule(s.Seed, s.duration, s.restarts, s.failovers), map[soakPhase]int{}
	s.soakFleet = newSoakFleet(s.svc, s.Seed)
	s.fleet = s.soakFleet.haFleet
	broken, err := s.execute(ctx)
	if err := errors.Join(err, s.soakFleet.close()); err != nil {
		return errors.Join(err, s.printBroken(s.soakFleet.recorder.breaches()))
	}
	if err := s.print(broken); err != nil || len(broken) == 0 {
		return err
	}
	return errBroken
}

// execute opens the fleet, measures the capacity, runs the load and the events, and audits the
// result. It returns the breaches.
func (s *soak) execute(ctx context.Context) ([]string, error) {
	if err := s.soakFleet.open(ctx); err != nil {
		return nil, err
	}
	s.load = newSoakLoad(s.soakFleet)
	var err error
	if s.capacity, err = s.findCapacity(ctx); err != nil {
		return nil, err
	}
	rate := s.part * s.capacity
	s.printf("seed %d: the capacity is %.0f requests/s; %.0f requests/s are offered for %s",
		s.Seed, s.capacity, rate, s.duration)
	began := time.Now()
	if err := s.runLoad(ctx, rate); err != nil {
		return nil, err
	}
	s.took = time.Since(began)
	s.printf("the load is over after %s", s.took.Round(time.Second))
	unsettled, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	broken, err := s.audit(ctx)
	return append(unsettled, broken...), err
}

// audit checks the result of the run by the partners' records, the gateway's list of debits and the
// webhooks. It also runs the service's own reconciliation and audit. It returns the breaches. On
// the way it stops the processes.
func (s *soak) audit(ctx context.Context) (broken []string, err error) {
	f := s.soakFleet
	for _, site := range s.load.sites {
		if err := site.auditGuests(ctx); err != nil {
			return nil, err
		}
	}
	if broken, err = f.compareBooks(ctx); err != nil {
		return nil, err
	}
	undelivered, err := f.receiver.check(ctx, f.store)
	if err != nil {
		return nil, err
	}
	broken = append(broken, undelivered...)
	for _, site := range s.load.sites {
		for _, p := range site.till.made {
			if difference := f.receiver.checkPayment(p.id, p.status); difference != "" {
				f.recorder.breach("webhooks disagree with a payment", "%s", difference)
			}
		}
	}
	broken = append(broken, admin(ctx, f.svc, f.env, "reconcile")...) // needs the running gateway
	f.stop()
	broken = append(broken, stopMembers(f.members)...)
	broken = append(broken, f.audit(ctx)...)
	return append(broken, f.recorder.breaches()...), nil
}

// printBroken prints the breaches of the run, and where the log of the gateway is. With --json, it
// prints to standard error.
func (s *soak) printBroken(broken []string) error {
	if len(broken) == 0 {
		return nil
	}
	dir, err := s.fleet.keepTranscripts()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("repeat the schedule with --seed %d; the log of the gateway is in %s. Broken:\n",
		s.Seed, filepath.Clean(dir))
	for _, line := range broken {
		text += line + "\n"
	}
	out := s.out
	if s.json {
		out = os.Stderr
	}
	_, err = io.WriteString(out, text)
	return err
}
