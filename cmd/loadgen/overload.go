package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func overloadCommand(out io.Writer) *cobra.Command {
	o := overload{bench: bench{out: out}}
	cmd := o.command("overload", "Measure what becomes of requests when four times as many come as the service can answer", 1, o.run, o.close)
	cmd.Flags().DurationVar(&o.measured, "measure", time.Minute, "time of the overload")
	cmd.Flags().DurationVar(&o.calm, "calm", 5*time.Second, "time in which capacity and usual latency are measured before, and the recovery after")
	cmd.Flags().Float64Var(&o.times, "times", 4, "how many times the capacity comes")
	cmd.Flags().BoolVar(&o.apart, "apart", true, "keep a CPU for the generator and all others for the service and its databases (Linux)")
	o.usesSvc(cmd)
	return cmd
}

// overload measures the service's back-pressure. The service and its databases have all CPUs but one, which is the
// partners': else they would slow down with the service, and spare it.
type overload struct {
	bench
	measured, calm time.Duration
	times          float64
	apart          bool

	cpus    []int // that there are
	api     *process
	address string  // where it listens
	callers []*call // that make a payment intent, of one partner each
	next    atomic.Int64
}

const (
	overloadPartners = 8
	overloadWorkers  = 32 // requests under way at once while capacity is measured: as many as the service works on
	probeRate        = 50 // a second, of requests that look how long one takes
)

// overloadFigures is what is measured.
type overloadFigures struct {
	capacity, accepted, refused   *series
	served, turned, before, after *spread
	lag, back, memory             *series
	found, failed                 float64 // payment intents that the service acknowledged and that are there; requests without an answer
}

func newOverloadFigures() *overloadFigures {
	return &overloadFigures{
		capacity: &series{Name: "capacity", Unit: "calls/s"}, accepted: &series{Name: "accepted in the overload", Unit: "calls/s"},
		refused: &series{Name: "refused in the overload", Unit: "calls/s"},
		before:  newSpread("before"), served: newSpread("accepted"), turned: newSpread("refused"), after: newSpread("after"),
		lag:    &series{Name: "the generator is late, p99", Unit: "ms"},
		back:   &series{Name: "until latency is as before", Unit: "s"},
		memory: &series{Name: "memory of the API at its peak", Unit: "MB"}, found: 1,
	}
}

func (o *overload) run(ctx context.Context) error {
	if err := o.start(ctx); err != nil {
		return err
	}
	f := newOverloadFigures()
	for range o.runs {
		if err := o.measure(ctx, f); err != nil {
			return err
		}
	}
	f.memory.add(o.api.peakMemory())
	all := []*series{f.capacity, f.accepted, f.refused, f.lag, f.back, f.memory}
	for _, s := range []*spread{f.before, f.served, f.turned, f.after} {
		all = append(all, s.p50, s.p99)
	}
	return o.report(all, []ratio{
		{Name: "p99 of accepted requests", Value: f.served.p99.most(), Target: -1000, Unit: "ms"},
		{Name: "p50 of refused requests", Value: f.turned.p50.most(), Target: -50, Unit: "ms"},
		{Name: "p99 of refused requests", Value: f.turned.p99.most(), Target: -250, Unit: "ms"},
		{Name: "accepted in the overload ÷ capacity", Value: f.accepted.median() / f.capacity.median(), Target: 0.7},
		{Name: "payment intents found ÷ acknowledged", Value: f.found, Target: 1},
		{Name: "requests answered ÷ sent", Value: 1 - f.failed, Target: 1},
		{Name: "until latency is as before", Value: f.back.most(), Target: -5, Unit: "s"},
	})
}

// measure finds the capacity and the usual latency, sends more than that for a while, and watches the service recover.
func (o *overload) measure(ctx context.Context, f *overloadFigures) error {
	if err := errors.Join(o.settle(ctx), o.probe(ctx, f.before, new([]lateProbe))); err != nil {
		return err
	}
	capacity, err := o.findCapacity(ctx)
	if err != nil {
		return err
	}
	f.capacity.add(capacity)
	if err := o.settle(ctx); err != nil {
		return err
	}
	l, err := o.flood(ctx, capacity*o.times)
	if err != nil {
		return err
	}
	var probes []lateProbe
	if err := o.probe(ctx, f.after, &probes); err != nil {
		return err
	}
	f.back.add(backAfter(probes, usual(f.before)).Seconds())
	f.accepted.add(float64(len(l.served)) / o.measured.Seconds())
	f.refused.add(float64(len(l.turned)) / o.measured.Seconds())
	for _, spans := range [][]time.Duration{l.served, l.turned, l.lag} {
		slices.Sort(spans)
	}
	f.lag.add(quantile(l.lag, 0.99))
	f.served.add(l.served)
	f.turned.add(l.turned)
	f.failed = max(f.failed, float64(l.failed)/float64(l.failed+len(l.served)+len(l.turned)))
	there, err := o.stored(ctx, l.made)
	f.found = min(f.found, float64(there)/float64(len(l.made)))
	return err
}

// usual is the longest latency that counts as being as before.
func usual(before *spread) time.Duration {
	return time.Duration(2 * before.p99.median() * float64(time.Millisecond))
}

func (o *overload) findCapacity(ctx context.Context) (perSecond float64, err error) {
	c, until := newCaller(overloadWorkers), time.Now().Add(o.calm)
	began := time.Now()
	var calls atomic.Int64
	var l laps
	var group sync.WaitGroup
	for range overloadWorkers {
		group.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				l.add(time.Now(), c.do(o.call()))
				calls.Add(1)
			}
		})
	}
	group.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), errors.Join(l.err, ctx.Err())
}

// call makes a payment intent, of the partners in turn. It has an Idempotency-Key, as those of partners who try again have,
// which makes it a transaction of several statements: the generator is to have an easier life than the service.
func (o *overload) call() *call {
	n := int(o.next.Add(1))
	c := *o.callers[n%len(o.callers)]
	c.key = strconv.Itoa(n)
	return &c
}

// floodLaps are what became of the requests of an overload.
type floodLaps struct {
	mu             sync.Mutex
	served, turned []time.Duration
	lag            []time.Duration // of ourselves
	made           []models.PaymentIntentID
	failed         int // no answer, or one that says something else
}

// flood sends requests at a rate.
func (o *overload) flood(ctx context.Context, rate float64) (*floodLaps, error) {
	c, l := newCaller(openConns), &floodLaps{}
	if err := c.dialAhead(ctx, o.address, openConns/2); err != nil {
		return nil, err
	}
	if err := newCaller(1).do(&call{url: "http://" + o.address + "/livez", want: http.StatusOK}); err != nil {
		return nil, err
	}
	err := pace(ctx, rate, o.measured, func(_ int, due time.Time) {
		var made models.PaymentIntentID
		var answered int
		lag := time.Since(due)
		err := c.send(o.call(), func(status int, body []byte) error {
			answered = status
			if status == http.StatusCreated {
				return made.UnmarshalText([]byte(intentID(body)))
			}
			return nil
		})
		l.add(answered, made, lag, time.Since(due), err)
	})
	return l, err
}

func (l *floodLaps) add(status int, made models.PaymentIntentID, lag, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = append(l.lag, lag)
	switch {
	case err == nil && status == http.StatusCreated:
		l.served, l.made = append(l.served, took), append(l.made, made)
	case err == nil && (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests):
		l.turned = append(l.turned, took)
	default:
		l.failed++
	}
}

// stored counts those payment intents that are there.
func (o *overload) stored(ctx context.Context, ids []models.PaymentIntentID) (there int, err error) {
	for some := range slices.Chunk(ids, 10_000) {
		var n int
		err := o.store.DB().DB.QueryRowContext(ctx, "SELECT count(*) FROM payment_intents WHERE id = ANY ($1::uuid[])", some).Scan(&n)
		if err != nil {
			return there, err
		}
		there += n
	}
	return there, nil
}

// lateProbe is when a probe was due, from the first on, and how long it took; one that was refused took for ever.
type lateProbe struct{ due, took time.Duration }

const forEver = time.Hour

// probe looks how long requests take that come one now and then.
func (o *overload) probe(ctx context.Context, to *spread, probes *[]lateProbe) error {
	c, began := newCaller(openConns), time.Now()
	var mu sync.Mutex
	var l laps
	err := pace(ctx, probeRate, max(o.calm, 2*time.Second), func(_ int, due time.Time) {
		err := c.do(o.call())
		took := time.Since(due)
		if err != nil {
			took = forEver
		}
		l.add(due, nil)
		mu.Lock()
		defer mu.Unlock()
		*probes = append(*probes, lateProbe{due.Sub(began), took})
	})
	to.add(l.sorted())
	return err
}

// inARow is how many probes of the usual length show that the service is as before: a single one is luck, and a single
// slow one much later is anybody's fault.
const inARow = 10

// backAfter is when the first probe of enough usual ones in a row was answered; that of the last one if there are none.
func backAfter(probes []lateProbe, usual time.Duration) time.Duration {
	slices.SortFunc(probes, func(a, b lateProbe) int { return cmp.Compare(a.due, b.due) })
	quick := 0
	for i, p := range probes {
		if quick++; p.took > usual {
			quick = 0
		}
		if quick == inARow {
			first := probes[i-inARow+1]
			return first.due + first.took
		}
	}
	last := probes[len(probes)-1]
	return last.due + last.took
}

// start starts the service on its CPUs, with a rate limit that counts but is never met, and moves away to the last one.
func (o *overload) start(ctx context.Context) error {
	cpus, err := ownCPUs()
	if err != nil {
		return err
	}
	if o.apart = o.apart && len(cpus) > 1; o.apart {
		o.cpus = cpus
		if err := pinSelf(cpus[:len(cpus)-1]); err != nil {
			return err
		}
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	var base string
	if o.api, base, err = o.startAPI("SVC_RATE_LIMIT=1000000", "SVC_LOG_LEVEL=INFO"); err != nil {
		return err
	}
	o.address = strings.TrimPrefix(base, "http://")
	if o.apart {
		if err := pinSelf(cpus[len(cpus)-1:]); err != nil {
			return err
		}
	}
	for range overloadPartners {
		sites, err := o.organisation(ctx, 1)
		if err != nil {
			return err
		}
		p, err := o.newPoster(ctx, newWeb(1), base, sites[0])
		if err != nil {
			return err
		}
		o.callers = append(o.callers, &call{
			url:           fmt.Sprint(base, "/checkout/", sites[0].ID, "/payment-intent"),
			authorization: bearer(p.token), body: `{"amount":1250,"orderId":"order 4711","qrCodeFormat":"text"}`,
		})
	}
	return nil
}

func (o *overload) close() error {
	err := errors.Join(terminateAll(o.api), o.bench.close())
	if o.cpus != nil {
		err = errors.Join(err, pinSelf(o.cpus))
	}
	return err
}
