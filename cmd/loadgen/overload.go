package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func overloadCommand(out io.Writer) *cobra.Command {
	o := overload{pinned: pinned{bench: bench{out: out}}}
	cmd := o.command("overload", "Measure how the service answers four times as many requests as it can serve", 1,
		o.run, o.close)
	cmd.Flags().DurationVar(&o.measured, "measure", time.Minute, "duration of the overload")
	cmd.Flags().DurationVar(&o.calm, "calm", 5*time.Second,
		"duration of the measurements of capacity and usual latency before, and of the recovery after")
	cmd.Flags().Float64Var(&o.times, "times", 4, "rate of the overload, as a multiple of the capacity")
	o.addPinFlag(cmd)
	o.addSvcFlag(cmd)
	return cmd
}

// overload measures how the service answers requests at a multiple of its capacity: which rate it
// still serves, how soon it refuses the rest, and how soon it recovers afterwards.
type overload struct {
	pinned
	measured, calm time.Duration // of the overload; of each measurement before and after
	times          float64       // rate of the overload ÷ capacity

	intents []*call      // one for each partner; each creates a payment intent
	next    atomic.Int64 // number of calls so far
}

const (
	overloadPartners = 8
	overloadWorkers  = 32 // concurrent requests in the measurement of the capacity
	probeRate        = 50 // probes per second
)

// overloadSeries holds the results over all runs; newOverloadSeries names the series. found is the
// smallest fraction of acknowledged payment intents that are stored. failed is the largest fraction
// of requests with no or an unexpected answer.
type overloadSeries struct {
	capacity, acceptedRate, refusedRate *series
	accepted, refused, before, after    *distribution
	lag, recovery, memory               *series
	found                               float64
	failed                              float64
}

func newOverloadSeries() *overloadSeries {
	return &overloadSeries{
		capacity:     &series{Name: "capacity", Unit: "calls/s"},
		acceptedRate: &series{Name: "accepted in the overload", Unit: "calls/s"},
		refusedRate:  &series{Name: "refused in the overload", Unit: "calls/s"},
		before:       newDistribution("before"), accepted: newDistribution("accepted"),
		refused: newDistribution("refused"), after: newDistribution("after"),
		lag:      &series{Name: "the generator is late, p99", Unit: "ms"},
		recovery: &series{Name: "until latency is as before", Unit: "s"},
		memory:   &series{Name: "memory of the API at its peak", Unit: "MB"}, found: 1,
	}
}

func (o *overload) run(ctx context.Context) error {
	if err := o.start(ctx); err != nil {
		return err
	}
	f := newOverloadSeries()
	for range o.runs {
		if err := o.measure(ctx, f); err != nil {
			return err
		}
	}
	f.memory.add(o.api.peakMemory())
	all := []*series{f.capacity, f.acceptedRate, f.refusedRate, f.lag, f.recovery, f.memory}
	for _, s := range []*distribution{f.before, f.accepted, f.refused, f.after} {
		all = append(all, s.p50, s.p99)
	}
	return o.report(all, []ratio{
		{Name: "p99 of accepted requests", Value: f.accepted.p99.max(), Target: -1000, Unit: "ms"},
		{Name: "p50 of refused requests", Value: f.refused.p50.max(), Target: -50, Unit: "ms"},
		{Name: "p99 of refused requests", Value: f.refused.p99.max(), Target: -250, Unit: "ms"},
		medianRatio("accepted in the overload ÷ capacity", f.acceptedRate, f.capacity, 0.7),
		{Name: "payment intents found ÷ acknowledged", Value: f.found, Target: 1},
		{Name: "requests answered ÷ sent", Value: 1 - f.failed, Target: 1},
		{Name: "until latency is as before", Value: f.recovery.max(), Target: -5, Unit: "s"},
	})
}

// measure measures the capacity and the usual latency, then the overload, and then the recovery.
func (o *overload) measure(ctx context.Context, f *overloadSeries) error {
	if err := errors.Join(o.checkpoint(ctx), o.probe(ctx, f.before, new([]probe))); err != nil {
		return err
	}
	capacity, err := o.findCapacity(ctx)
	if err != nil {
		return err
	}
	f.capacity.add(capacity)
	if err := o.checkpoint(ctx); err != nil {
		return err
	}
	l, err := o.flood(ctx, capacity*o.times)
	if err != nil {
		return err
	}
	var probes []probe
	if err := o.probe(ctx, f.after, &probes); err != nil {
		return err
	}
	f.recovery.add(recoveryTime(probes, maxUsualLatency(f.before)))
	f.acceptedRate.add(float64(len(l.accepted)) / o.measured.Seconds())
	f.refusedRate.add(float64(len(l.refused)) / o.measured.Seconds())
	for _, durations := range [][]time.Duration{l.accepted, l.refused, l.lag} {
		slices.Sort(durations)
	}
	f.lag.add(quantile(l.lag, 0.99))
	f.accepted.add(l.accepted)
	f.refused.add(l.refused)
	f.failed = max(f.failed, float64(l.failed)/float64(l.failed+len(l.accepted)+len(l.refused)))
	stored, err := o.countStored(ctx, l.created)
	f.found = min(f.found, float64(stored)/float64(len(l.created)))
	return err
}

// maxUsualLatency returns the largest latency that counts as usual: twice the p99 before the
// overload.
func maxUsualLatency(before *distribution) time.Duration {
	return time.Duration(2 * before.p99.median() * float64(time.Millisecond))
}

// findCapacity returns the number of requests per second that the service answers if
// overloadWorkers make one request after another.
func (o *overload) findCapacity(ctx context.Context) (perSecond float64, err error) {
	c, until := o.measuringClient(overloadWorkers), time.Now().Add(o.calm)
	began := time.Now()
	var calls atomic.Int64
	var l timings
	var group sync.WaitGroup
	for range overloadWorkers {
		group.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				l.add(time.Now(), c.do(o.nextCall()))
				calls.Add(1)
			}
		})
	}
	group.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), errors.Join(l.failure(), ctx.Err())
}

// nextCall returns a call that creates a payment intent, for the partners in rotation. The call has
// a new Idempotency-Key. The service thus needs a database transaction of several statements, and
// has more work than the generator.
func (o *overload) nextCall() *call {
	n := int(o.next.Add(1))
	c := *o.intents[n%len(o.intents)]
	c.key = strconv.Itoa(n)
	return &c
}

// floodResults collects the results of the requests in an overload. Its method add is safe for
// concurrent use.
type floodResults struct {
	mu                sync.Mutex
	accepted, refused []time.Duration // latencies, from the time when each request was due
	lag               []time.Duration // how late the generator sent each request
	created           []models.PaymentIntentID
	failed            int // requests with no or an unexpected answer
}

// flood sends requests at a rate for the measured time, at first over connections that are open
// already.
func (o *overload) flood(ctx context.Context, rate float64) (*floodResults, error) {
	c, l := newLoadClient(openConns), &floodResults{}
	if err := c.dialAhead(ctx, o.address, openConns/2); err != nil {
		return nil, err
	}
	if err := newLoadClient(1).do(&call{url: "http://" + o.address + "/livez", want: http.StatusOK}); err != nil {
		return nil, err
	}
	err := pace(ctx, rate, callsIn(o.measured, rate), func(_ context.Context, _ int, due time.Time) error {
		var created models.PaymentIntentID
		var answered int
		lag := time.Since(due)
		err := c.send(o.nextCall(), func(status int, body []byte) error {
			answered = status
			if status == http.StatusCreated {
				return created.UnmarshalText([]byte(intentID(body)))
			}
			return nil
		})
		l.add(answered, created, lag, time.Since(due), err)
		return nil
	})
	return l, err
}

// add adds an answered or failed request.
func (l *floodResults) add(status int, created models.PaymentIntentID, lag, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = append(l.lag, lag)
	switch {
	case err == nil && status == http.StatusCreated:
		l.accepted, l.created = append(l.accepted, took), append(l.created, created)
	case err == nil && (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests):
		l.refused = append(l.refused, took)
	default:
		l.failed++
	}
}

// countStored returns how many of the payment intents are stored.
func (o *overload) countStored(ctx context.Context, ids []models.PaymentIntentID) (stored int, err error) {
	const query = "SELECT count(*) FROM payment_intents WHERE id = ANY ($1::uuid[])"
	for chunk := range slices.Chunk(ids, 10_000) {
		var n int
		if err := o.store.DB().DB.QueryRowContext(ctx, query, chunk).Scan(&n); err != nil {
			return stored, err
		}
		stored += n
	}
	return stored, nil
}

// probe is a request that measures the latency. due is the time from the beginning of the
// measurement until the request was due, and took the time from then to the answer.
type probe struct{ due, took time.Duration }

// failedProbe is the duration that a refused or failed probe counts with. It is never usual.
const failedProbe = time.Hour

// probe measures the latency of requests at a low rate, for the time o.calm but at least two
// seconds. It adds the percentiles of the successful ones to the distribution, and appends each
// request to probes.
func (o *overload) probe(ctx context.Context, to *distribution, probes *[]probe) error {
	c, began := newLoadClient(openConns), time.Now()
	var mu sync.Mutex
	var l timings
	n := callsIn(max(o.calm, 2*time.Second), probeRate)
	err := pace(ctx, probeRate, n, func(_ context.Context, _ int, due time.Time) error {
		err := c.do(o.nextCall())
		took := time.Since(due)
		if err != nil {
			took = failedProbe
		}
		l.add(due, err)
		mu.Lock()
		defer mu.Unlock()
		*probes = append(*probes, probe{due.Sub(began), took})
		return nil
	})
	to.add(l.sorted())
	return err
}

// recoveredProbes is the number of successive probes with usual latency that count as recovery. A
// single usual probe may be chance. A single slow probe much later may have other causes.
const recoveredProbes = 10

// recoveryTime returns the time in seconds until the service had recovered: until the answer to the
// first of recoveredProbes successive usual probes. Without such probes, it returns +Inf, which
// misses every target. It sorts the probes.
func recoveryTime(probes []probe, maxUsual time.Duration) float64 {
	slices.SortFunc(probes, func(a, b probe) int { return cmp.Compare(a.due, b.due) })
	usual := 0
	for i, p := range probes {
		if usual++; p.took > maxUsual {
			usual = 0
		}
		if usual == recoveredProbes {
			first := probes[i-recoveredProbes+1]
			return (first.due + first.took).Seconds()
		}
	}
	return math.Inf(1)
}

// start starts the API, and creates the partners.
func (o *overload) start(ctx context.Context) error {
	base, err := o.startPinned(ctx)
	if err != nil {
		return err
	}
	for range overloadPartners {
		_, intent, err := o.newCaller(ctx, base)
		if err != nil {
			return err
		}
		o.intents = append(o.intents, intent)
	}
	return nil
}
