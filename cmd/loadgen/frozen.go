package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
	"partnerbilling/deploy/wire"
)

func frozenCommand(out io.Writer) *cobra.Command {
	f := frozen{recovery: recovery{partners: partners{bench: bench{out: out}}}}
	cmd := f.command("frozen",
		"Measure how soon work continues when connections to Postgres or Redis are accepted and never answered", 20,
		f.run, f.close)
	cmd.Flags().IntVar(&f.backlog, "rows", 20_000, "number of pending rows, kept constant")
	cmd.Flags().DurationVar(&f.latency, "latency", 50*time.Millisecond, "latency of the rail")
	cmd.Flags().DurationVar(&f.warmUp, "warm-up", 3*time.Second, "time under load before connections freeze")
	cmd.Flags().DurationVar(&f.thaw, "thaw", 30*time.Second, "time until the thaw, if new connections freeze too")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 90*time.Second, "maximum time of a measurement")
	f.addSvcFlag(cmd)
	return cmd
}

// frozen measures how soon the service works again after its connections to Postgres or Redis
// freeze. Frozen connections stay open and carry nothing. Either the open connections freeze and
// new ones work, or all freeze until a thaw. One `svc api` and three `svc worker` run.
type frozen struct {
	recovery
	thaw, timeout time.Duration // time until the thaw; maximum time of a measurement

	wires    map[string]*wire.Wire // TCP proxies to the servers, by server
	apiProc  *process
	prober   *client.Client // submits probes, without retries
	observed *observer      // of the prober's answers
	probes   int            // number of probes so far
}

// frozenServers lists the servers whose connections freeze.
var frozenServers = []string{"Postgres", "Redis"}

// frozenSeries holds the results for one server, in seconds; newFrozenSeries names them.
type frozenSeries struct{ gap, inFlight, answer, debitAfterThaw, answerAfterThaw *series }

func newFrozenSeries(server string) frozenSeries {
	named := func(text string) *series { return &series{Name: server + ", " + text, Unit: "s"} }
	return frozenSeries{
		gap:             named("open connections frozen: longest time without a debit"),
		inFlight:        named("open connections frozen: until all tasks that were in flight are finished"),
		answer:          named("open connections frozen: until a submission is answered with 202"),
		debitAfterThaw:  named("all frozen: from the thaw to a debit"),
		answerAfterThaw: named("all frozen: from the thaw to a 202"),
	}
}

func (f frozenSeries) series() []*series {
	return []*series{f.gap, f.inFlight, f.answer, f.debitAfterThaw, f.answerAfterThaw}
}

// maxStandstill is the target for every result, in seconds.
const maxStandstill = 30

func (f *frozen) run(ctx context.Context) error {
	if err := f.start(ctx); err != nil {
		return err
	}
	var all []*series
	var bounds []ratio
	results := map[string]frozenSeries{}
	for _, server := range frozenServers {
		result := newFrozenSeries(server)
		results[server], all = result, append(all, result.series()...)
	}
	for range f.runs {
		for _, server := range frozenServers {
			if err := f.freeze(ctx, server, results[server]); err != nil {
				return errors.Join(err, f.workerLogs())
			}
		}
	}
	if err := f.verify(ctx); err != nil {
		return err
	}
	for _, server := range frozenServers {
		for _, s := range results[server].series() {
			bounds = append(bounds, ratio{
				Name: s.Name + ", slowest", Value: s.max(), Target: -maxStandstill, Unit: "s",
			})
		}
	}
	if _, broken := f.observed.seen(); len(broken) > 0 {
		return fmt.Errorf("unexpected answers:\n%s", strings.Join(broken, "\n"))
	}
	return f.report(all, bounds)
}

// start starts the servers, the wires to them, the gateway, the workers and the API.
func (f *frozen) start(ctx context.Context) error {
	if err := f.open(ctx); err != nil {
		return err
	}
	if err := f.addPartners(ctx, benchSites); err != nil {
		return err
	}
	f.wires = map[string]*wire.Wire{}
	for server, url := range map[string]string{"Postgres": f.local.DatabaseURL, "Redis": f.local.RedisURL} {
		w, err := wire.New(hostOf(url))
		if err != nil {
			return err
		}
		f.wires[server] = w
	}
	var err error
	if f.gateway, err = f.startGateway(ctx, f.latency); err != nil {
		return err
	}
	env := append(f.gateway.variables(),
		"SVC_DATABASE_URL="+f.wires["Postgres"].Through(f.local.DatabaseURL),
		"SVC_REDIS_URL="+f.wires["Redis"].Through(f.local.RedisURL))
	if f.workers, err = f.startWorkers(recoveryWorkers, env...); err != nil {
		return err
	}
	var base string
	if f.apiProc, base, err = f.startAPI(env...); err != nil {
		return err
	}
	id, secret, err := f.newClient(ctx, f.sites[0])
	f.observed = &observer{next: &http.Transport{MaxIdleConnsPerHost: 2}}
	f.prober = client.New(client.Config{
		BaseURL: base, ClientID: id, ClientSecret: secret, MaxRetries: -1,
		HTTP: &http.Client{Timeout: f.timeout, Transport: f.observed},
	})
	return err
}

func (f *frozen) close() error {
	err := terminateAll(f.apiProc)
	if f.gateway == nil {
		err = errors.Join(err, f.bench.close())
	} else {
		err = errors.Join(err, f.recovery.close())
	}
	for _, w := range f.wires {
		w.Close()
	}
	return err
}

// freeze freezes the connections to a server under load: first the open ones, then all.
func (f *frozen) freeze(ctx context.Context, server string, to frozenSeries) error {
	if err := f.underLoad(ctx, func() error { return f.freezeOpen(ctx, f.wires[server], to) }); err != nil {
		return err
	}
	return f.underLoad(ctx, func() error { return f.freezeAll(ctx, f.wires[server], to) })
}

// freezeOpen freezes the open connections, and measures the time until work continues over new
// ones.
func (f *frozen) freezeOpen(ctx context.Context, w *wire.Wire, to frozenSeries) (err error) {
	if err := f.recordInFlight(ctx); err != nil {
		return err
	}
	if err := w.Begin(1, wire.Fault{FreezeOpen: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.End(1)) }()
	began := time.Now()
	f.gateway.resetGap(began)
	answered := make(chan float64, 1)
	go func() { answered <- f.untilAnswered(ctx, began) }()
	inFlight, err := f.measure(ctx, func(ctx context.Context) error { return f.awaitRecorded(ctx, "true") })
	if err != nil {
		return err
	}
	to.inFlight.add(inFlight)
	to.answer.add(<-answered)
	to.gap.add(f.gateway.longestGap(time.Now()).Seconds())
	return nil
}

// freezeAll freezes all connections until the thaw, and measures the time from the thaw until work
// continues.
func (f *frozen) freezeAll(ctx context.Context, w *wire.Wire, to frozenSeries) error {
	if err := w.Begin(1, wire.Fault{Freeze: true}); err != nil {
		return err
	}
	if err := errors.Join(wait(ctx, f.thaw), w.End(1)); err != nil {
		return err
	}
	began := time.Now()
	answered := make(chan float64, 1)
	go func() { answered <- f.untilAnswered(ctx, began) }()
	before := f.gateway.count()
	debited, err := f.measure(ctx, func(ctx context.Context) error {
		return await(ctx, 10*time.Millisecond, func() (bool, error) {
			return f.gateway.count() > before, checkRunning(f.workers...)
		})
	})
	to.debitAfterThaw.add(debited)
	to.answerAfterThaw.add(<-answered)
	return err
}

// measure calls do, and returns how many seconds do takes. After the time-out, measure cancels do
// and returns the time until then, without an error.
func (f *frozen) measure(ctx context.Context, do func(context.Context) error) (float64, error) {
	bounded, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	began := time.Now()
	err := do(bounded)
	if bounded.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return time.Since(began).Seconds(), err
}

// untilAnswered submits a batch of one row again and again until the answer is 202. It returns how
// many seconds have passed since began. It gives up after the time-out.
func (f *frozen) untilAnswered(ctx context.Context, began time.Time) float64 {
	f.probes++
	batch := client.Batch{
		BatchReference: fmt.Sprint("probe ", f.probes),
		Rows:           []client.Row{{CustomerReference: "0", RowReference: "0", Amount: 1}},
	}
	for time.Since(began) < f.timeout {
		_, err := f.prober.SubmitBatch(ctx, f.sites[0].ID.String(), batch)
		if err == nil || !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	return time.Since(began).Seconds()
}
