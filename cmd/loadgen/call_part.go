package main

import (
	"context"
	"time"
)

// callPart is one of the things that a scenario compares: calls of a handler, as many as it can take.
type callPart struct {
	process *process
	call    *call
	rate    *series // calls/s
	cost    *series // of the process, for each call
}

func newCallPart(name string, process *process, call *call) *callPart {
	return &callPart{process, call, &series{Name: name, Unit: "calls/s"}, &series{Name: "its process, for each call", Unit: "µs CPU"}}
}

// flatOut measures how many calls a second a handler answers. A tenth of the time before counts for nothing.
func (b *bench) flatOut(ctx context.Context, part *callPart, workers int, measured time.Duration) error {
	if err := b.settle(ctx); err != nil {
		return err
	}
	c, pid := newCaller(workers), part.process.cmd.Process.Pid
	if _, _, err := c.closedLoop(ctx, workers, measured/10, part.call); err != nil {
		return err
	}
	used := ownTime(pid)
	spans, took, err := c.closedLoop(ctx, workers, measured, part.call)
	used = ownTime(pid) - used
	part.rate.add(float64(len(spans)) / took.Seconds())
	part.cost.add(float64(used.Microseconds()) / float64(len(spans)))
	return err
}

// steady measures how long calls take that come at a rate, from when each is due.
func (b *bench) steady(ctx context.Context, rate float64, measured time.Duration, call *call, to *spread) error {
	if err := b.settle(ctx); err != nil {
		return err
	}
	spans, err := newCaller(openConns).openLoop(ctx, rate, measured, call)
	to.add(spans)
	return err
}

// spread is how latencies lie, run by run, in ms.
type spread struct{ p50, p90, p99, p999, most *series }

func newSpread(name string) *spread {
	of := func(quantile string) *series { return &series{Name: name + ", " + quantile, Unit: "ms"} }
	return &spread{of("p50"), of("p90"), of("p99"), of("p99.9"), of("most")}
}

// add adds the figures of a run, its spans sorted.
func (s *spread) add(spans []time.Duration) {
	for q, to := range map[float64]*series{0.5: s.p50, 0.9: s.p90, 0.99: s.p99, 0.999: s.p999, 1: s.most} {
		to.add(quantile(spans, q))
	}
}

func (s *spread) series() []*series { return []*series{s.p50, s.p90, s.p99, s.p999, s.most} }
