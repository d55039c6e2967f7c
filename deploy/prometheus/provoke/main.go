// Command provoke tests the alerts of deploy/prometheus against real faults. It starts a fleet on
// private servers, with Prometheus and Alertmanager, which must be installed. It provokes one fault
// after another. For each it prints the alerts that fired, those that were notified, and those that
// Alertmanager held back.
//
//	go build -o /tmp/svc ./cmd/svc && go run ./deploy/prometheus/provoke -svc /tmp/svc
//
// The times in the rules are divided by -speed, and a few thresholds are lowered, so that a run
// takes minutes. All else in the rules, and the inhibition, is as in production. The command fails
// if a fault does not provoke its alerts, or provokes other pages than it lists.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binary := flag.String("svc", "", "the binary of svc")
	rules := flag.String("rules", "deploy/prometheus", "the folder of the rules")
	speed := flag.Float64("speed", 30, "divides the times of the rules")
	only := flag.String("only", "", "run only the faults whose name contains this")
	flag.Parse()
	if err := run(ctx, *binary, *rules, *only, *speed); err != nil {
		fmt.Fprintln(os.Stderr, "provoke:", err)
		os.Exit(1)
	}
}

// run provokes the faults whose name contains only, and prints a report. It returns an error if
// provoke reports false for a fault.
func run(ctx context.Context, binary, rules, only string, speed float64) (err error) {
	dir, err := os.MkdirTemp("", "svc-provoke-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	f := &fleet{binary: binary, dir: dir}
	defer f.stop()
	if err := f.start(ctx); err != nil {
		return err
	}
	m := &monitor{rules: rules, dir: dir, speed: speed, fleet: f}
	defer m.stop()
	if err := m.start(ctx); err != nil {
		return err
	}
	loading, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); f.load(loading) }()
	defer func() { end(); <-done }()

	failed := 0
	provoked := map[string]bool{}
	for _, fault := range faults {
		if !strings.Contains(fault.name, only) {
			continue
		}
		ok, fired, err := m.provoke(ctx, fault)
		if err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
		if !ok {
			failed++
		}
		for _, name := range fired {
			provoked[name] = true
		}
	}
	var missing []string
	for _, name := range m.alerts {
		if !provoked[name] {
			missing = append(missing, name)
		}
	}
	fmt.Printf("\n%d of %d alerts were provoked. Not provoked:\n", len(m.alerts)-len(missing), len(m.alerts))
	for _, name := range missing {
		fmt.Printf("  %-28s %s\n", name, unprovoked[name])
	}
	if failed > 0 {
		return fmt.Errorf("%d faults were not seen as expected", failed)
	}
	return nil
}

// provoke begins a fault, waits until the expected alerts fire, ends the fault, and prints what it
// has seen. ok says whether the fault provoked its alerts and, if it lists pages, exactly these.
// fired are the alerts that began to fire. provoke returns once only earlier and lasting alerts
// fire, or after two more minutes.
func (m *monitor) provoke(ctx context.Context, fault fault) (ok bool, fired []string, err error) {
	before, err := m.firing(ctx)
	if err != nil {
		return false, nil, err
	}
	m.notified.reset()
	began := time.Now()
	end, err := fault.begin(ctx, m.fleet)
	if err != nil {
		return false, nil, err
	}
	seen, held := set{}, set{}
	observe := func() error {
		now, err := m.firing(ctx)
		if err != nil {
			return err
		}
		inhibited, err := m.inhibited(ctx)
		if err != nil {
			return err
		}
		for name := range now {
			if !before[name] {
				seen[name] = true
			}
		}
		held.add(inhibited)
		return nil
	}
	within := time.NewTimer(fault.within())
	defer within.Stop()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var complete <-chan time.Time
	var took time.Duration
wait:
	for {
		select {
		case <-ctx.Done():
			return false, nil, ctx.Err()
		case <-within.C:
			break wait
		case <-complete:
			break wait
		case <-tick.C:
		}
		if err := observe(); err != nil {
			return false, nil, err
		}
		if pages, _ := m.notified.seen(); complete == nil && seen.hasAll(fault.fires) && pages.hasAll(fault.pages) {
			took = time.Since(began)
			complete = time.After(fault.watch()) // for consequences
		}
	}
	if end != nil {
		if err := end(ctx); err != nil {
			return false, nil, err
		}
	}
	paged, ticketed := m.notified.seen()
	pages, tickets := paged.names(), ticketed.names()
	ok = complete != nil
	switch {
	case !ok:
		fmt.Printf("FAILED %s: want %s\n", fault.name, strings.Join(fault.fires, " "))
	case fault.pages != nil && !slices.Equal(pages, slices.Sorted(slices.Values(fault.pages))):
		ok = false
		fmt.Printf("FAILED %s: want the pages %s\n", fault.name, strings.Join(fault.pages, " "))
	default:
		fmt.Printf("ok     %s, after %s\n", fault.name, took.Round(time.Second))
	}
	show := func(what string, names []string) {
		if len(names) > 0 {
			fmt.Printf("       %-10s %s\n", what, strings.Join(names, " "))
		}
	}
	show("fired", seen.names())
	show("paged", pages)
	show("ticketed", tickets)
	show("held back", held.names())
	return ok, seen.names(), m.awaitCalm(ctx, before)
}
