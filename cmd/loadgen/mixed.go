package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func mixedCommand(out io.Writer) *cobra.Command {
	m := mixed{partners: partners{bench: bench{out: out}}}
	cmd := m.command("mixed", "Measure partners' requests of all kinds at a steady rate, while a worker settles what they submit", 3,
		m.run, m.close)
	cmd.Flags().IntVar(&m.organisations, "organisations", 8, "organisations that call in turn, each with a client")
	cmd.Flags().DurationVar(&m.measured, "measure", 20*time.Second, "time of each run")
	cmd.Flags().Float64Var(&m.rate, "rate", 200, "requests a second")
	m.usesSvc(cmd)
	return cmd
}

// mixed measures an ordinary day's requests.
type mixed struct {
	partners
	organisations int
	measured      time.Duration
	rate          float64

	api, worker *process
	callers     []mixedPartner
	made        int // batches and invitations, for their names
}

// mixedPartner is who calls: a Site, its client's token, and a payment intent to ask about.
type mixedPartner struct {
	billing, checkout string // base URLs
	authorization     string
	intent            string
}

// mixedKind is one kind of requests.
type mixedKind struct {
	name  string
	share int // of 20
	call  func(p *mixedPartner, n int) *call
	took  *latencies
}

func (m *mixed) kinds() []*mixedKind {
	kinds := []*mixedKind{
		{name: "list customers", share: 5, call: func(p *mixedPartner, _ int) *call {
			return p.get(p.billing + "/customers?limit=50")
		}},
		{name: "get a customer", share: 3, call: func(p *mixedPartner, n int) *call {
			return p.get(fmt.Sprint(p.billing, "/customers/", n%partnerCustomers))
		}},
		{name: "batch status", share: 4, call: func(p *mixedPartner, _ int) *call {
			return p.get(p.billing + "/batches/first")
		}},
		{name: "get a payment intent", share: 2, call: func(p *mixedPartner, _ int) *call {
			return p.get(p.checkout + "/payment-intent/" + p.intent)
		}},
		{name: "invite", share: 2, call: func(p *mixedPartner, n int) *call {
			return p.post(p.billing+"/customers/invitations", fmt.Sprintf(`{"customerReference":"new %d %d"}`, m.made, n), http.StatusCreated)
		}},
		{name: "submit 10 rows", share: 1, call: func(p *mixedPartner, n int) *call {
			return p.post(p.billing+"/batches", string(m.batchBody(fmt.Sprint(m.made, " ", n), 10)), http.StatusAccepted)
		}},
		{name: "create a payment intent", share: 3, call: func(p *mixedPartner, _ int) *call {
			return p.post(p.checkout+"/payment-intent", `{"amount":1250,"orderId":"order 4711"}`, http.StatusCreated)
		}},
	}
	for _, k := range kinds {
		k.took = &latencies{&series{Name: k.name + ", p50", Unit: "ms"}, &series{Name: k.name + ", p99", Unit: "ms"}}
	}
	return kinds
}

func (p *mixedPartner) get(url string) *call {
	return &call{url: url, authorization: p.authorization, want: http.StatusOK}
}

func (p *mixedPartner) post(url, body string, want int) *call {
	return &call{url: url, authorization: p.authorization, body: body, want: want}
}

func (m *mixed) run(ctx context.Context) error {
	if err := m.start(ctx); err != nil {
		return err
	}
	kinds := m.kinds()
	all, cost := newSpread("all requests"), &series{Name: "the API, for each request", Unit: "µs CPU"}
	for range m.runs {
		if err := m.measure(ctx, kinds, all, cost); err != nil {
			return err
		}
	}
	memory := &series{Name: "memory of the API at its peak", Unit: "MB", Values: []float64{m.api.peakMemory()}}
	figures := append(all.series(), cost, memory)
	for _, k := range kinds {
		figures = append(figures, k.took.p50, k.took.p99)
	}
	return m.report(figures, []ratio{{Name: "memory of the API", Value: memory.most(), Target: -100, Unit: "MB"}})
}

// measure has the partners call for a while, each kind as often as its share says.
func (m *mixed) measure(ctx context.Context, kinds []*mixedKind, all *spread, cost *series) error {
	if err := m.settle(ctx); err != nil {
		return err
	}
	m.made++
	var schedule []int
	for k := range kinds {
		schedule = append(schedule, slices.Repeat([]int{k}, kinds[k].share)...)
	}
	c, each, together := newCaller(openConns), make([]laps, len(kinds)), laps{}
	used := ownTime(m.api.cmd.Process.Pid)
	err := pace(ctx, m.rate, m.measured, func(n int, due time.Time) {
		k := schedule[n*7%len(schedule)] // 7 mixes them, as it has no divisor in common with 20
		p := &m.callers[n%len(m.callers)]
		err := c.do(kinds[k].call(p, n))
		each[k].add(due, err)
		together.add(due, err)
	})
	used = ownTime(m.api.cmd.Process.Pid) - used
	for k := range kinds {
		spans := each[k].sorted()
		kinds[k].took.p50.add(quantile(spans, 0.5))
		kinds[k].took.p99.add(quantile(spans, 0.99))
	}
	all.add(together.sorted())
	cost.add(float64(used.Microseconds()) / float64(len(together.spans)))
	return errors.Join(err, together.err)
}

// start starts the API and a worker, and makes partners, each with a settled batch and a payment intent.
func (m *mixed) start(ctx context.Context) error {
	if err := m.open(ctx); err != nil {
		return err
	}
	if err := m.addPartners(ctx, m.organisations); err != nil {
		return err
	}
	var base string
	var err error
	if m.api, base, err = m.startAPI("SVC_RATE_LIMIT=1000000", "SVC_BATCH_RATE_LIMIT=1000000", "SVC_LOG_LEVEL=INFO"); err != nil {
		return err
	}
	workers, err := m.startWorkers(1)
	if err != nil {
		return err
	}
	m.worker = workers[0]
	m.callers = make([]mixedPartner, len(m.sites))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i := range m.callers {
		group.Go(func() error { return m.introduce(groupCtx, base, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return m.awaitSettled(ctx)
}

// introduce makes the partner of a Site.
func (m *mixed) introduce(ctx context.Context, base string, i int) error {
	site := m.sites[i]
	poster, err := m.newPoster(ctx, newWeb(1), base, site)
	if err != nil {
		return err
	}
	p := mixedPartner{
		billing: base + "/billing/sites/" + site.ID.String(), checkout: base + "/checkout/" + site.ID.String(),
		authorization: bearer(poster.token),
	}
	c := newCaller(1)
	if err := c.do(p.post(p.billing+"/batches", string(m.batchBody("first", 100)), http.StatusAccepted)); err != nil {
		return err
	}
	p.intent, err = c.createIntent(p.post(p.checkout+"/payment-intent", `{"amount":1250,"qrCodeFormat":"text"}`, http.StatusCreated))
	m.callers[i] = p
	return err
}

// createIntent makes a payment intent and returns its id.
func (c *caller) createIntent(call *call) (id string, err error) {
	err = c.send(call, func(status int, body []byte) error {
		if status != http.StatusCreated {
			return fmt.Errorf("%s: %d: %s", call.url, status, body)
		}
		id = intentID(body)
		return nil
	})
	return id, err
}

// intentID finds the id in the answer to a new payment intent.
func intentID(body []byte) string {
	_, rest, _ := strings.Cut(string(body), `"paymentIntentId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func (m *mixed) close() error {
	return errors.Join(terminateAll(m.api, m.worker), m.bench.close())
}
