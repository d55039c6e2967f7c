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
)

func tokenCommand(out io.Writer) *cobra.Command {
	t := token{bench: bench{out: out}}
	cmd := t.command("token", "Measure the issue of access tokens, and requests that only check a token", 5,
		t.run, t.close)
	cmd.Flags().IntVar(&t.workers, "workers", 32, "number of concurrent requests, each on a kept connection")
	cmd.Flags().DurationVar(&t.measured, "measure", 5*time.Second, "duration of each run")
	cmd.Flags().Float64Var(&t.tokenRate, "token-rate", 50, "tokens per second, in the runs at a steady rate")
	cmd.Flags().Float64Var(&t.readRate, "read-rate", 800, "reads per second, in the runs at a steady rate")
	t.addSvcFlag(cmd)
	return cmd
}

// token measures the cost of authentication: of issuing access tokens, and of checking a token.
type token struct {
	bench
	workers             int
	measured            time.Duration
	tokenRate, readRate float64

	api    *process
	issue  *call // fetches an access token
	noRead *call // passes authentication, and gets a 404 before any query of the database
}

func (t *token) run(ctx context.Context) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	tokens := newContender("tokens", t.api, t.issue)
	reads := newContender("reads without a query", t.api, t.noRead)
	steadyTokens := newDistribution(fmt.Sprintf("a token at %g/s", t.tokenRate))
	steadyReads := newDistribution(fmt.Sprintf("a read at %g/s", t.readRate))
	steps := []func() error{
		func() error { return t.measureThroughput(ctx, tokens, t.workers, t.measured) },
		func() error { return t.measureThroughput(ctx, reads, t.workers, t.measured) },
		func() error { return t.measureLatency(ctx, t.tokenRate, t.measured, t.issue, steadyTokens) },
		func() error { return t.measureLatency(ctx, t.readRate, t.measured, t.noRead, steadyReads) },
	}
	for range t.runs {
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		slices.Reverse(steps)
	}
	all := []*series{tokens.rate, tokens.cost, reads.rate, reads.cost}
	return t.report(slices.Concat(all, steadyTokens.series(), steadyReads.series()), []ratio{
		{Name: "p99 of tokens at a steady rate", Value: steadyTokens.p99.median(), Target: -20, Unit: "ms"},
		{Name: "p99 of reads at a steady rate", Value: steadyReads.p99.median(), Target: -20, Unit: "ms"},
	})
}

// start starts the API with a rate limit that is never reached, creates a client, and prepares the
// calls.
func (t *token) start(ctx context.Context) error {
	if err := t.open(ctx); err != nil {
		return err
	}
	sites, err := t.organisation(ctx, 1)
	if err != nil {
		return err
	}
	var base string
	if t.api, base, err = t.startAPI("SVC_RATE_LIMIT=100000", "SVC_LOG_LEVEL=INFO"); err != nil {
		return err
	}
	id, secret, err := t.newClient(ctx, sites[0])
	if err != nil {
		return err
	}
	t.issue = tokenCall(base, id, secret)
	token, err := newLoadClient(1).fetchToken(ctx, t.issue)
	t.noRead = &call{
		url:           fmt.Sprint(base, "/billing/sites/", sites[0].ID, "/batches/%FF"),
		authorization: bearer(token), want: http.StatusNotFound,
	}
	return err
}

func (t *token) close() error { return errors.Join(terminateAll(t.api), t.bench.close()) }
