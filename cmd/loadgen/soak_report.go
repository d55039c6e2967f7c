package main

import (
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
)

// print prints the report of a soak run: the latencies by kind and phase, the results with their
// targets, and the breaches. With --json, it prints the results as JSON.
func (s *soak) print(broken []string) error {
	if !s.json {
		if err := s.printLatencies(); err != nil {
			return err
		}
	}
	b := bench{out: s.out, json: s.json, calls: &callCounts{}}
	if err := b.report(s.series(), s.ratios(len(broken))); err != nil {
		return err
	}
	if len(broken) > 0 {
		return s.printBroken(broken)
	}
	if !s.json {
		fmt.Fprintln(s.out, "nothing acknowledged vanished, nothing was debited twice, no success was lost; "+
			"audit and reconciliation are clean")
	}
	return nil
}

// kinds returns the kinds of the requests in a run, in alphabetical order.
func (s *soak) kinds() []string {
	kinds := map[string]bool{}
	for key := range s.soakFleet.recorder.tallies {
		kinds[key.kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// printLatencies prints a table with a column for each phase. It shows the p50 and p99 of each kind
// of request, and the numbers of requests, refusals, errors and events.
func (s *soak) printLatencies() error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "p50 / p99, ms\t")
	for _, phase := range soakPhases {
		fmt.Fprintf(w, "%s\t", phase)
	}
	fmt.Fprintln(w)
	for _, kind := range s.kinds() {
		fmt.Fprintf(w, "%s\t", kind)
		for _, phase := range soakPhases {
			t := s.soakFleet.recorder.of(kind, phase)
			if len(t.latencies) == 0 {
				fmt.Fprint(w, "–\t")
				continue
			}
			fmt.Fprintf(w, "%.3g / %.3g\t", quantile(t.latencies, 0.5), quantile(t.latencies, 0.99))
		}
		fmt.Fprintln(w)
	}
	for _, count := range []struct {
		name string
		of   func(*soakTally) int
	}{
		{"requests", func(t *soakTally) int { return t.sent }},
		{"503 with Retry-After", func(t *soakTally) int { return t.unavailable }},
		{"errors", func(t *soakTally) int { return t.errors }},
		{"times", nil},
	} {
		fmt.Fprintf(w, "%s\t", count.name)
		for _, phase := range soakPhases {
			switch {
			case count.of != nil:
				fmt.Fprintf(w, "%d\t", count.of(s.soakFleet.recorder.total(phase)))
			case phase == phaseCalm:
				fmt.Fprint(w, "–\t")
			case phase == phaseRebuild:
				fmt.Fprintf(w, "%d\t", s.events[phaseFailover])
			default:
				fmt.Fprintf(w, "%d\t", s.events[phase])
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// series returns the results of the run. As JSON they include the latencies of each kind.
func (s *soak) series() (all []*series) {
	add := func(name, unit string, values ...float64) {
		all = append(all, &series{Name: name, Unit: unit, Values: values})
	}
	r, counts := s.soakFleet.recorder, s.fleet.counts()
	add("capacity", "requests/s", s.capacity)
	add("offered", "requests/s", s.part*s.capacity)
	add("duration", "s", s.took.Seconds())
	add("requests", "", float64(r.total(soakPhases...).sent))
	add("rows", "", float64(counts.Rows))
	add("batches", "", float64(counts.Batches))
	add("payment intents", "", float64(counts.Payments))
	events, repeated := s.fleet.receiver.repeated()
	add("webhook events", "", float64(events))
	add("webhooks that repeat an event", "", float64(repeated))
	for _, phase := range soakPhases {
		t := r.total(phase)
		add(string(phase)+", p50", "ms", quantile(t.latencies, 0.5))
		add(string(phase)+", p99", "ms", quantile(t.latencies, 0.99))
	}
	promoted, answered := &series{Name: "from the kill to the next primary", Unit: "s"},
		&series{Name: "from its readiness to a good answer", Unit: "s"}
	for _, p := range s.promotions {
		promoted.add(p.Promoted.Seconds())
		answered.add(p.Answered.Seconds())
	}
	all = append(all, promoted, answered)
	if !s.json {
		return all
	}
	for _, kind := range s.kinds() {
		for _, phase := range soakPhases {
			if t := r.of(kind, phase); len(t.latencies) > 0 {
				name := kind + ", " + string(phase)
				add(name+", p50", "ms", quantile(t.latencies, 0.5))
				add(name+", p99", "ms", quantile(t.latencies, 0.99))
			}
		}
	}
	return all
}

// ratios returns the results with a target. broken is the number of breaches.
func (s *soak) ratios(broken int) []ratio {
	r := s.soakFleet.recorder
	outside := r.total(phaseCalm, phaseRestart, phaseMigration, phaseBackup, phaseRebuild)
	during := r.total(phaseFailover)
	kept := 1.0
	if broken > 0 {
		kept = 0
	}
	return []ratio{
		{Name: "successes ÷ requests, outside of the failovers",
			Value: 1 - float64(outside.errors+outside.unavailable)/float64(outside.sent), Target: 1},
		{Name: "successes and 503 ÷ requests, in the failovers",
			Value: 1 - float64(during.errors)/float64(during.sent), Target: 1, unmeasured: s.failovers == 0},
		{Name: "audits and comparisons without a breach", Value: kept, Target: 1},
	}
}
