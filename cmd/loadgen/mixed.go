package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func mixedCommand(out io.Writer) *cobra.Command {
	m := mixed{partners: partners{bench: bench{out: out}}}
	cmd := m.command("mixed",
		"Measure partners' requests of all kinds at a steady rate, while a worker settles their batches", 3,
		m.run, m.close)
	cmd.Flags().IntVar(&m.organisations, "organisations", 8,
		"number of organisations that call in rotation, each with a client")
	cmd.Flags().DurationVar(&m.measured, "measure", 20*time.Second, "duration of each run")
	cmd.Flags().Float64Var(&m.rate, "rate", 200, "requests a second")
	m.addSvcFlag(cmd)
	return cmd
}

// mixed measures the latency of partners' requests of all kinds, mixed as on an ordinary day, while
// a worker settles the submitted batches.
type mixed struct {
	partners
	organisations int
	measured      time.Duration
	rate          float64 // requests per second

	api, worker *process
	callers     []mixedCaller // one for each Site
	round       int           // number of the run, from 1; it makes references unique
}

// mixedCaller makes requests for a Site. It has a token and a payment intent to read.
type mixedCaller struct {
	billing, checkout string // URLs of the Site's areas
	authorization     string // header with the token
	intent            string // id of the payment intent
}

// mixedKind is a kind of request. call returns the request with the number n of a caller.
type mixedKind struct {
	name      string
	weight    int // requests of the kind in every 20
	call      func(p *mixedCaller, n int) *call
	latencies *latencySeries
}

// kinds returns all kinds of requests, without latencies.
func (m *mixed) kinds() []*mixedKind {
	kinds := []*mixedKind{
		{name: "list customers", weight: 5, call: func(p *mixedCaller, _ int) *call {
			return p.get(p.billing + "/customers?limit=50")
		}},
		{name: "get a customer", weight: 3, call: func(p *mixedCaller, n int) *call {
			return p.get(fmt.Sprint(p.billing, "/customers/", n%partnerCustomers))
		}},
		{name: "batch status", weight: 4, call: func(p *mixedCaller, _ int) *call {
			return p.get(p.billing + "/batches/first")
		}},
		{name: "get a payment intent", weight: 2, call: func(p *mixedCaller, _ int) *call {
			return p.get(p.checkout + "/payment-intent/" + p.intent)
		}},
		{name: "invite", weight: 2, call: func(p *mixedCaller, n int) *call {
			body := fmt.Sprintf(`{"customerReference":"new %d %d"}`, m.round, n)
			return p.post(p.billing+"/customers/invitations", body, http.StatusCreated)
		}},
		{name: "submit 10 rows", weight: 1, call: func(p *mixedCaller, n int) *call {
			body := m.batchBody(fmt.Sprint(m.round, " ", n), 10)
			return p.post(p.billing+"/batches", body, http.StatusAccepted)
		}},
		{name: "create a payment intent", weight: 3, call: func(p *mixedCaller, _ int) *call {
			return p.post(p.checkout+"/payment-intent", `{"amount":1250,"orderId":"order 4711"}`, http.StatusCreated)
		}},
	}
	for _, k := range kinds {
		k.latencies = &latencySeries{
			&series{Name: k.name + ", p50", Unit: "ms"}, &series{Name: k.name + ", p99", Unit: "ms"},
		}
	}
	return kinds
}

func (p *mixedCaller) get(url string) *call {
	return &call{url: url, authorization: p.authorization, want: http.StatusOK}
}

func (p *mixedCaller) post(url, body string, want int) *call {
	return &call{url: url, authorization: p.authorization, body: body, want: want}
}

func (m *mixed) run(ctx context.Context) error {
	if err := m.start(ctx); err != nil {
		return err
	}
	kinds := m.kinds()
	all, cost := newDistribution("all requests"), &series{Name: "the API, for each request", Unit: "µs CPU"}
	for range m.runs {
		if err := m.measure(ctx, kinds, all, cost); err != nil {
			return err
		}
	}
	memory := &series{Name: "memory of the API at its peak", Unit: "MB", Values: []float64{m.api.peakMemory()}}
	results := append(all.series(), cost, memory)
	for _, k := range kinds {
		results = append(results, k.latencies.p50, k.latencies.p99)
	}
	return m.report(results, []ratio{{Name: "memory of the API", Value: memory.max(), Target: -100, Unit: "MB"}})
}

// measure makes requests of all kinds at the rate, by their weights. It adds their latencies, and
// the CPU time of the API per request.
func (m *mixed) measure(ctx context.Context, kinds []*mixedKind, all *distribution, cost *series) error {
	if err := m.checkpoint(ctx); err != nil {
		return err
	}
	m.round++
	var schedule []int
	for k := range kinds {
		schedule = append(schedule, slices.Repeat([]int{k}, kinds[k].weight)...)
	}
	c, byKind, together := m.measuringClient(openConns), make([]timings, len(kinds)), timings{}
	used := cpuTime(m.api.cmd.Process.Pid)
	err := pace(ctx, m.rate, callsIn(m.measured, m.rate), func(_ context.Context, n int, due time.Time) error {
		entry, caller := mix(n, len(schedule), len(m.callers))
		k := schedule[entry]
		err := c.do(kinds[k].call(&m.callers[caller], n))
		byKind[k].add(due, err)
		together.add(due, err)
		return nil
	})
	used = cpuTime(m.api.cmd.Process.Pid) - used
	for k := range kinds {
		sorted := byKind[k].sorted()
		kinds[k].latencies.p50.add(quantile(sorted, 0.5))
		kinds[k].latencies.p99.add(quantile(sorted, 0.99))
	}
	all.add(together.sorted())
	cost.add(float64(used.Microseconds()) / float64(len(together.latencies)))
	return errors.Join(err, together.failure())
}

// mix returns the entry of a schedule and the caller of the request with the number n. Steps of 7,
// which must not divide the number of entries, reach all entries and mix the kinds of requests.
// Each round through the schedule begins with the next caller, so that every caller reaches all
// entries.
func mix(n, entries, callers int) (entry, caller int) {
	return n * 7 % entries, (n%entries + n/entries) % callers
}

// start starts the API and a worker, and creates the callers. Each caller has a settled batch and a
// payment intent.
func (m *mixed) start(ctx context.Context) error {
	if err := m.open(ctx); err != nil {
		return err
	}
	if err := m.addPartners(ctx, m.organisations); err != nil {
		return err
	}
	var base string
	var err error
	m.api, base, err = m.startAPI("SVC_RATE_LIMIT=100000", "SVC_BATCH_RATE_LIMIT=100000", "SVC_LOG_LEVEL=INFO")
	if err != nil {
		return err
	}
	workers, err := m.startWorkers(1)
	if err != nil {
		return err
	}
	m.worker = workers[0]
	m.callers = make([]mixedCaller, len(m.sites))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i := range m.callers {
		group.Go(func() error { return m.addCaller(groupCtx, base, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return m.awaitSettled(ctx)
}

// addCaller creates the caller of the Site with the index i.
func (m *mixed) addCaller(ctx context.Context, base string, i int) error {
	site := m.sites[i]
	access, err := m.newBatchClient(ctx, newLoadClient(1), base, site)
	if err != nil {
		return err
	}
	p := mixedCaller{
		billing: base + "/billing/sites/" + site.ID.String(), checkout: base + "/checkout/" + site.ID.String(),
		authorization: bearer(access.token),
	}
	if _, err := access.submit(ctx, m.batchBody("first", 100)); err != nil {
		return err
	}
	create := p.post(p.checkout+"/payment-intent", `{"amount":1250,"qrCodeFormat":"text"}`, http.StatusCreated)
	p.intent, err = newLoadClient(1).createIntent(ctx, create)
	m.callers[i] = p
	return err
}

func (m *mixed) close() error {
	return errors.Join(terminateAll(m.api, m.worker), m.bench.close())
}
