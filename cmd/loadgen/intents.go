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

	"partnerbilling/models"
)

func intentsCommand(out io.Writer) *cobra.Command {
	i := intents{bench: bench{out: out}}
	cmd := i.command("intents", "Measure the creation of payment intents, against a naive handler and a bare insert", 5,
		i.run, i.close)
	cmd.Flags().IntVar(&i.workers, "workers", 32, "number of concurrent requests, each on a kept connection")
	cmd.Flags().DurationVar(&i.measured, "measure", 5*time.Second, "duration of each run")
	cmd.Flags().Float64Var(&i.rate, "rate", 800, "intents with a picture per second, in the runs at a steady rate")
	i.addSvcFlag(cmd)
	return cmd
}

// intents measures the throughput and latency of creating payment intents. It compares the service
// with the two handlers of intents_reference.go.
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
	picture := i.intentCall(`{"amount":1250,"orderId":"order 4711"}`)
	text := i.intentCall(`{"amount":1250,"orderId":"order 4711","qrCodeFormat":"text"}`)
	parts := []*contender{
		newContender("intents with a picture", i.api, picture),
		newContender("naive handler", i.reference, &call{url: i.referenceURL + "/naive", body: picture.body}),
		newContender("intents with text", i.api, text),
		newContender("bare insert handler", i.reference, &call{url: i.referenceURL + "/bare", body: text.body}),
	}
	steady := newDistribution(fmt.Sprintf("a picture at %g/s", i.rate))
	// floor is the latency that the disk and the machine cause without the service.
	floor := newDistribution(fmt.Sprintf("a bare insert at %g/s", i.rate))
	order := slices.Clone(parts)
	for range i.runs { // in alternating order, so that a drift of the machine affects all
		for _, part := range order {
			if err := i.measureThroughput(ctx, part, i.workers, i.measured); err != nil {
				return fmt.Errorf("%s: %w", part.rate.Name, err)
			}
		}
		for distribution, call := range map[*distribution]*call{steady: picture, floor: parts[3].call} {
			if err := i.measureLatency(ctx, i.rate, i.measured, call, distribution); err != nil {
				return err
			}
		}
		slices.Reverse(order)
	}
	return i.show(parts, steady, floor)
}

// start starts the API with a rate limit that is never reached, and the handlers for comparison in
// a process of their own.
func (i *intents) start(ctx context.Context) error {
	if err := i.open(ctx); err != nil {
		return err
	}
	sites, err := i.organisation(ctx, 1)
	if err != nil {
		return err
	}
	i.site = sites[0]
	if i.api, i.apiURL, err = i.startAPI("SVC_RATE_LIMIT=100000", "SVC_LOG_LEVEL=INFO"); err != nil {
		return err
	}
	if i.reference, i.referenceURL, err = i.startReference(i.site); err != nil {
		return err
	}
	p, err := i.newBatchClient(ctx, newLoadClient(1), i.apiURL, i.site)
	if err == nil {
		i.token = p.token
	}
	return err
}

func (i *intents) close() error {
	return errors.Join(terminateAll(i.api, i.reference), i.bench.close())
}

// intentCall returns a call that creates a payment intent with the body.
func (i *intents) intentCall(body string) *call {
	url := i.apiURL + "/checkout/" + i.site.ID.String() + "/payment-intent"
	return &call{url: url, authorization: bearer(i.token), body: body}
}

// show reports the results. parts has the order of run.
func (i *intents) show(parts []*contender, steady, floor *distribution) error {
	var all []*series
	for _, part := range parts {
		all = append(all, part.rate, part.cost)
	}
	all = slices.Concat(all, steady.series(), floor.series())
	return i.report(all, []ratio{
		medianRatio("with a picture ÷ naive handler", parts[0].rate, parts[1].rate, 3),
		medianRatio("with text ÷ bare insert handler", parts[2].rate, parts[3].rate, 0.7),
		{Name: "p99 of pictures at a steady rate", Value: steady.p99.median(), Target: -20, Unit: "ms"},
	})
}

// createIntent makes a call that creates a payment intent, and returns the intent's id. It repeats
// a call that is answered with 503.
func (c *loadClient) createIntent(ctx context.Context, call *call) (id string, err error) {
	err = retryRefused(ctx, func() error {
		return c.send(call, func(status int, body []byte) error {
			id = intentID(body)
			return call.check(status, body)
		})
	})
	return id, err
}

// intentID returns the id of the new payment intent in an answer's body.
func intentID(body []byte) string {
	_, rest, _ := strings.Cut(string(body), `"paymentIntentId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}
