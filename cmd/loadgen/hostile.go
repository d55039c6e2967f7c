package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func hostileCommand(out io.Writer) *cobra.Command {
	h := hostile{pinned: pinned{bench: bench{out: out}}}
	cmd := h.command("hostile", "Measure the memory of the API, and another partner's latency, under attacks", 3,
		h.run, h.close)
	cmd.Flags().DurationVar(&h.measured, "measure", 5*time.Second,
		"duration of each attack, and of the measurement before it")
	cmd.Flags().Float64Var(&h.rate, "rate", 100, "requests a second of the other partner")
	cmd.Flags().IntVar(&h.attackers.Bodies, "bodies", 30, "bodies of 1 MiB that are sent at once, at most every second")
	cmd.Flags().IntVar(&h.attackers.Unfinished, "unfinished", 600, "authenticated bodies that miss a byte")
	cmd.Flags().IntVar(&h.attackers.Connections, "connections", 3000, "idle, slow or unauthenticated connections")
	cmd.Flags().Float64Var(&h.attackers.Polls, "polls", 98, "held requests a second of the greedy partner")
	cmd.Flags().Float64Var(&h.attackers.Reads, "reads", 95, "reads of 600 KB a second of the greedy partner")
	cmd.Flags().IntVar(&h.attackers.Streams, "streams", 300, "streams of the greedy partner")
	cmd.Flags().IntVar(&h.requests, "requests", 12_000, "distinct hostile requests of each run")
	cmd.Flags().Uint64Var(&h.seed, "seed", 1, "seed of the hostile requests of the first run")
	cmd.Flags().StringVar(&h.only, "only", "", "run only the attacks whose name contains this")
	cmd.Flags().StringVar(&h.memory, "memory", "180MiB", "GOMEMLIMIT of the API")
	h.addPinFlag(cmd)
	h.addSvcFlag(cmd)
	return cmd
}

// hostile measures how much of the API's memory and time attackers can take. The attackers are
// partners, and clients without a token. Rate limits are raised so far that they stop no attack.
// The flags explain the numbers.
type hostile struct {
	pinned
	attackers attackers
	measured  time.Duration
	rate      float64
	requests  int
	seed      uint64
	only      string
	memory    string

	partners []*batchClient // the attacking ones
	victim   *call          // a call of the other partner, which creates a payment intent
	partner  *loadClient    // of the other partner; keeps its connections
}

// The targets: the maximum of the API's memory in MB, and the maximum of the other partner's p99
// during an attack ÷ before.
const (
	maxHostileMemory = 200
	maxHostileRatio  = 1.2
)

// attackSeries holds the results of an attack over all runs; newAttackSeries names the series.
// answered is the smallest fraction of the other partner's requests that succeeded during the
// attack.
type attackSeries struct {
	attack                *attack
	alone, during, memory *series
	answered              float64
}

func newAttackSeries(a *attack) *attackSeries {
	named := func(text, unit string) *series { return &series{Name: a.name + ": " + text, Unit: unit} }
	return &attackSeries{
		attack: a, alone: named("p99 before", "ms"), during: named("p99 meanwhile", "ms"),
		memory: named("peak memory", "MB"), answered: 1,
	}
}

func (s *attackSeries) ratios() []ratio {
	return []ratio{
		medianRatio(s.attack.name+": p99 ÷ p99 before", s.during, s.alone, -maxHostileRatio),
		{Name: s.attack.name + ": other partner's requests answered ÷ sent", Value: s.answered, Target: 1},
		{Name: s.attack.name + ": peak memory, largest", Value: s.memory.max(), Target: -maxHostileMemory, Unit: "MB"},
	}
}

func (h *hostile) run(ctx context.Context) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	attacks := h.attackers.attacks()
	attacks = slices.DeleteFunc(attacks, func(a attack) bool { return !strings.Contains(a.name, h.only) })
	probed := newRequestSeries()
	results := make([]*attackSeries, len(attacks))
	for i := range attacks {
		results[i] = newAttackSeries(&attacks[i])
	}
	for range h.runs {
		for _, result := range results {
			if err := h.measure(ctx, result); err != nil {
				return fmt.Errorf("%s: %w", result.attack.name, err)
			}
		}
		if h.requests > 0 {
			if err := h.probeRequests(ctx, probed); err != nil {
				return fmt.Errorf("hostile requests: %w", err)
			}
			h.seed++
		}
	}
	var all []*series
	var bounds []ratio
	for _, r := range results {
		all = append(all, r.alone, r.during, r.memory)
		bounds = append(bounds, r.ratios()...)
	}
	if h.requests > 0 {
		all, bounds = append(all, probed.series()...), append(bounds, probed.ratios()...)
	}
	return h.report(all, bounds)
}

// measure measures the other partner's latency before and during an attack, and the peak memory of
// the API. It returns an error if the API does not survive.
func (h *hostile) measure(ctx context.Context, to *attackSeries) error {
	if err := h.checkpoint(ctx); err != nil {
		return err
	}
	alone, _, err := h.latency(ctx)
	if err != nil {
		return err
	}
	if err := h.api.resetPeakMemory(); err != nil {
		return err
	}
	attack, err := h.attackers.start(to.attack)
	if err != nil {
		return err
	}
	during, answered, err := h.latency(ctx)
	if err := errors.Join(err, checkRunning(attack, h.api), attack.terminate()); err != nil {
		return err
	}
	to.alone.add(alone)
	to.during.add(during)
	to.memory.add(h.api.peakMemory())
	to.answered = min(to.answered, answered)
	return h.awaitCalm(ctx)
}

// probeRequests sends hostile requests, and measures the other partner's latency before and after.
// Each request must be answered, without 5xx, and errors must have the shape of their area.
func (h *hostile) probeRequests(ctx context.Context, to *requestSeries) error {
	before, _, err := h.latency(ctx)
	if err != nil {
		return err
	}
	maker, err := h.newRequestMaker(h.partners[0], h.seed)
	if err != nil {
		return err
	}
	results, err := sendHostile(ctx, h.address, maker, h.requests)
	if err != nil {
		return err
	}
	after, answered, err := h.latency(ctx)
	if err != nil {
		return err
	}
	to.before.add(before)
	to.after.add(after)
	to.sent.add(float64(len(maker.made)))
	to.refused.add(float64(results.refused))
	to.failed, to.misshapen = to.failed+results.failed, to.misshapen+results.misshapen
	to.answered = min(to.answered, answered)
	return checkRunning(h.api)
}

// latency makes requests of the other partner for the measured time. It returns the p99 of the
// successful ones in ms, and the fraction that succeeded.
func (h *hostile) latency(ctx context.Context) (p99, answered float64, err error) {
	var l timings
	sent := callsIn(h.measured, h.rate)
	err = pace(ctx, h.rate, sent, func(_ context.Context, _ int, due time.Time) error {
		l.add(due, h.partner.do(h.victim))
		return nil
	})
	sorted := l.sorted()
	if len(sorted) == 0 {
		return 0, 0, errors.Join(err, l.failure())
	}
	return quantile(sorted, 0.99), float64(len(sorted)) / float64(sent), err
}

// awaitCalm waits until the API has closed nearly all of the attackers' connections.
func (h *hostile) awaitCalm(ctx context.Context) error {
	c := newLoadClient(1)
	return await(ctx, 100*time.Millisecond, func() (bool, error) {
		var few bool
		err := c.send(&call{url: "http://" + h.address + "/metrics"}, func(_ int, body []byte) error {
			_, rest, _ := strings.Cut(string(body), "\nsvc_http_connections ")
			var open float64
			_, err := fmt.Sscan(rest, &open)
			few = open < 200
			return err
		})
		return few, err
	})
}

// start starts the API, and creates the attackers and the other partner.
func (h *hostile) start(ctx context.Context) error {
	base, err := h.startPinned(ctx, "GOMEMLIMIT="+h.memory, "SVC_BATCH_RATE_LIMIT=100000")
	if err != nil {
		return err
	}
	h.attackers.Address, h.attackers.Yielding = h.address, h.cpus != nil
	for range h.attackers.Bodies {
		p, _, err := h.newCaller(ctx, base)
		if err != nil {
			return err
		}
		h.partners = append(h.partners, p)
		h.attackers.Partners = append(h.attackers.Partners, attackingPartner{p.url, p.token})
	}
	if _, h.victim, err = h.newCaller(ctx, base); err != nil {
		return err
	}
	h.partner = newLoadClient(openConns)
	return h.submitLarge(ctx, h.partners[0])
}
