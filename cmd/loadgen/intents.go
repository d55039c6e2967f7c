package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/models"
)

func intentsCommand(out io.Writer) *cobra.Command {
	i := intents{bench: bench{out: out}}
	cmd := i.command("intents", "Measure the making of payment intents, against a naive handler and against a bare insert", 5, i.run, i.close)
	cmd.Flags().IntVar(&i.workers, "workers", 32, "requests under way at once, each on a connection that is kept")
	cmd.Flags().DurationVar(&i.measured, "measure", 5*time.Second, "time of each run")
	cmd.Flags().Float64Var(&i.rate, "rate", 800, "pictures a second of the runs at a steady rate")
	i.usesSvc(cmd)
	return cmd
}

// intents measures how fast payment intents are made. What they are compared with is in intents_reference.go.
type intents struct {
	bench
	workers  int
	measured time.Duration
	rate     float64

	api, reference       *process
	apiURL, referenceURL string
	site                 models.Site
	token                string
}

// intentPart is one of the things that are compared: calls of a handler, as many as it can take.
type intentPart struct {
	process *process
	call    *call
	rate    *series // calls/s
	cost    *series // of the process, for each call
}

func (i *intents) run(ctx context.Context) error {
	if err := i.start(ctx); err != nil {
		return err
	}
	picture, text := i.intentCall(`{"amount":1250,"orderId":"order 4711"}`), i.intentCall(`{"amount":1250,"orderId":"order 4711","qrCodeFormat":"text"}`)
	parts := []*intentPart{
		newIntentPart("intents with a picture", i.api, picture),
		newIntentPart("naive handler", i.reference, &call{url: i.referenceURL + "/naive", body: picture.body}),
		newIntentPart("intents with text", i.api, text),
		newIntentPart("bare insert handler", i.reference, &call{url: i.referenceURL + "/bare", body: text.body}),
	}
	steady := newSpread(fmt.Sprintf("a picture at %g/s", i.rate))
	turns := slices.Clone(parts)
	for range i.runs { // in turns and in both orders, so that a drift of the machine meets all alike
		for _, part := range turns {
			if err := i.flatOut(ctx, part); err != nil {
				return fmt.Errorf("%s: %w", part.rate.Name, err)
			}
		}
		if err := i.steady(ctx, picture, steady); err != nil {
			return err
		}
		slices.Reverse(turns)
	}
	return i.show(parts, steady)
}

func newIntentPart(name string, process *process, call *call) *intentPart {
	return &intentPart{process, call, &series{Name: name, Unit: "calls/s"}, &series{Name: "its process, for each call", Unit: "µs CPU"}}
}

// start starts the service, with a rate limit that counts but is never met, and the references in a process of their own.
func (i *intents) start(ctx context.Context) error {
	if err := i.open(ctx); err != nil {
		return err
	}
	sites, err := i.organisation(ctx, 1)
	if err != nil {
		return err
	}
	i.site = sites[0]
	if i.api, i.apiURL, err = i.startAPI("SVC_RATE_LIMIT=1000000", "SVC_LOG_LEVEL=INFO"); err != nil {
		return err
	}
	if i.reference, i.referenceURL, err = i.startReference(i.site); err != nil {
		return err
	}
	p, err := i.newPoster(ctx, newWeb(1), i.apiURL, i.site)
	if err == nil {
		i.token = p.token
	}
	return err
}

func (i *intents) close() error {
	var running []*process
	for _, p := range []*process{i.api, i.reference} {
		if p != nil {
			running = append(running, p)
		}
	}
	return errors.Join(terminateAll(running...), i.bench.close())
}

func (i *intents) intentCall(body string) *call {
	return &call{url: i.apiURL + "/checkout/" + i.site.ID.String() + "/payment-intent", token: i.token, body: body}
}

// flatOut measures how many calls a second a handler answers. A tenth of the time before counts for nothing.
func (i *intents) flatOut(ctx context.Context, part *intentPart) error {
	if err := i.settle(ctx); err != nil {
		return err
	}
	c, pid := newCaller(i.workers), part.process.cmd.Process.Pid
	if _, _, err := c.closedLoop(ctx, i.workers, i.measured/10, part.call); err != nil {
		return err
	}
	used := ownTime(pid)
	spans, took, err := c.closedLoop(ctx, i.workers, i.measured, part.call)
	used = ownTime(pid) - used
	part.rate.add(float64(len(spans)) / took.Seconds())
	part.cost.add(float64(used.Microseconds()) / float64(len(spans)))
	return err
}

// steady measures how long calls take that come at a rate, from when each is due.
func (i *intents) steady(ctx context.Context, picture *call, to *spread) error {
	if err := i.settle(ctx); err != nil {
		return err
	}
	spans, err := newCaller(openConns).openLoop(ctx, i.rate, i.measured, picture)
	to.add(spans)
	return err
}

func (i *intents) show(parts []*intentPart, steady *spread) error {
	var all []*series
	for _, part := range parts {
		all = append(all, part.rate, part.cost)
	}
	all = append(all, steady.series()...)
	return i.report(all, []ratio{
		{Name: "with a picture ÷ naive handler", Value: parts[0].rate.median() / parts[1].rate.median(), Target: 3},
		{Name: "with text ÷ bare insert handler", Value: parts[2].rate.median() / parts[3].rate.median(), Target: 0.7},
		{Name: "p99 of pictures at a steady rate", Value: steady.p99.median(), Target: -20, Unit: "ms"},
	})
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
