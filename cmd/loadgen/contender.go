package main

import (
	"context"
	"time"
)

// contender is one of the HTTP handlers whose throughput a scenario compares.
type contender struct {
	process *process // the server of the handler
	call    *call
	rate    *series // calls/s
	cost    *series // CPU time of the process per call, in µs
}

// newContender returns a contender without results. name is the name of its rate in the report.
func newContender(name string, process *process, call *call) *contender {
	return &contender{
		process, call, &series{Name: name, Unit: "calls/s"},
		&series{Name: "its process, for each call", Unit: "µs CPU"},
	}
}

// measureThroughput measures how many calls per second the handler answers to a number of
// concurrent workers, and how much CPU time its process uses per call. A warm-up of a tenth of the
// measured time comes first.
func (b *bench) measureThroughput(ctx context.Context, of *contender, workers int, measured time.Duration) error {
	if err := b.checkpoint(ctx); err != nil {
		return err
	}
	c, pid := b.measuringClient(workers), of.process.cmd.Process.Pid
	if _, _, err := c.closedLoop(ctx, workers, measured/10, of.call); err != nil {
		return err
	}
	used := cpuTime(pid)
	latencies, took, err := c.closedLoop(ctx, workers, measured, of.call)
	used = cpuTime(pid) - used
	of.rate.add(float64(len(latencies)) / took.Seconds())
	of.cost.add(float64(used.Microseconds()) / float64(len(latencies)))
	return err
}

// measureLatency measures the latency of calls at a rate per second, from the time when each is
// due, and adds its percentiles to the distribution.
func (b *bench) measureLatency(
	ctx context.Context, rate float64, measured time.Duration, call *call, to *distribution,
) error {
	if err := b.checkpoint(ctx); err != nil {
		return err
	}
	latencies, err := b.measuringClient(openConns).openLoop(ctx, rate, measured, call)
	to.add(latencies)
	return err
}

// distribution holds percentiles of latencies in ms. Each series has one value for each run.
type distribution struct{ p50, p90, p99, p999, max *series }

// newDistribution returns a distribution without values. name begins the names of its series.
func newDistribution(name string) *distribution {
	of := func(quantile string) *series { return &series{Name: name + ", " + quantile, Unit: "ms"} }
	return &distribution{of("p50"), of("p90"), of("p99"), of("p99.9"), of("max")}
}

// add adds the percentiles of a run. The latencies must be sorted.
func (s *distribution) add(latencies []time.Duration) {
	for q, to := range map[float64]*series{0.5: s.p50, 0.9: s.p90, 0.99: s.p99, 0.999: s.p999, 1: s.max} {
		to.add(quantile(latencies, q))
	}
}

func (s *distribution) series() []*series { return []*series{s.p50, s.p90, s.p99, s.p999, s.max} }

// quantile returns the quantile q, from 0 to 1, of sorted durations. The result is in milliseconds,
// and 0 without durations.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Seconds() * 1000
}
