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

func (i *intents) run(ctx context.Context) error {
	if err := i.start(ctx); err != nil {
		return err
	}
	picture, text := i.intentCall(`{"amount":1250,"orderId":"order 4711"}`), i.intentCall(`{"amount":1250,"orderId":"order 4711","qrCodeFormat":"text"}`)
	parts := []*callPart{
		newCallPart("intents with a picture", i.api, picture),
		newCallPart("naive handler", i.reference, &call{url: i.referenceURL + "/naive", body: picture.body}),
		newCallPart("intents with text", i.api, text),
		newCallPart("bare insert handler", i.reference, &call{url: i.referenceURL + "/bare", body: text.body}),
	}
	steady := newSpread(fmt.Sprintf("a picture at %g/s", i.rate))
	floor := newSpread(fmt.Sprintf("a bare insert at %g/s", i.rate)) // what the disk and the machine make of it
	turns := slices.Clone(parts)
	for range i.runs { // in turns and in both orders, so that a drift of the machine meets all alike
		for _, part := range turns {
			if err := i.flatOut(ctx, part, i.workers, i.measured); err != nil {
				return fmt.Errorf("%s: %w", part.rate.Name, err)
			}
		}
		for spread, call := range map[*spread]*call{steady: picture, floor: parts[3].call} {
			if err := i.steady(ctx, i.rate, i.measured, call, spread); err != nil {
				return err
			}
		}
		slices.Reverse(turns)
	}
	return i.show(parts, steady, floor)
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
	return &call{url: i.apiURL + "/checkout/" + i.site.ID.String() + "/payment-intent", authorization: bearer(i.token), body: body}
}

func (i *intents) show(parts []*callPart, steady, floor *spread) error {
	var all []*series
	for _, part := range parts {
		all = append(all, part.rate, part.cost)
	}
	all = slices.Concat(all, steady.series(), floor.series())
	return i.report(all, []ratio{
		{Name: "with a picture ÷ naive handler", Value: parts[0].rate.median() / parts[1].rate.median(), Target: 3},
		{Name: "with text ÷ bare insert handler", Value: parts[2].rate.median() / parts[3].rate.median(), Target: 0.7},
		{Name: "p99 of pictures at a steady rate", Value: steady.p99.median(), Target: -20, Unit: "ms"},
	})
}
