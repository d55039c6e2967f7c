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
	cmd := f.command("frozen", "Measure how soon work goes on when connections to Postgres or Redis are accepted and never answered", 20,
		f.run, f.close)
	cmd.Flags().IntVar(&f.backlog, "rows", 20_000, "rows that are always pending")
	cmd.Flags().DurationVar(&f.latency, "latency", 50*time.Millisecond, "latency of the rail")
	cmd.Flags().DurationVar(&f.warmUp, "warm-up", 3*time.Second, "time at work before connections freeze")
	cmd.Flags().DurationVar(&f.thaw, "thaw", 30*time.Second, "time until the thaw, where new connections freeze too")
	cmd.Flags().DurationVar(&f.patience, "patience", 90*time.Second, "time after which a standstill is taken for endless")
	f.usesSvc(cmd)
	return cmd
}

// frozen measures one `svc api` and three `svc worker` whose connections to a server freeze: they stay, and nothing
// comes through. Either those that are open freeze, and new ones work; or all do, until the thaw.
type frozen struct {
	recovery
	thaw, patience time.Duration

	wires    map[string]*wire.Wire // by server
	apiProc  *process
	prober   *client.Client
	observed *observer
	probes   int
}

// frozenServers are the servers whose wires freeze.
var frozenServers = []string{"Postgres", "Redis"}

// frozenFigures are what is measured of one server.
type frozenFigures struct{ still, flight, answer, thawed, answerThawed *series }

func newFrozenFigures(server string) frozenFigures {
	named := func(text string) *series { return &series{Name: server + ", " + text, Unit: "s"} }
	return frozenFigures{
		still:        named("open connections frozen: longest time without a debit"),
		flight:       named("open connections frozen: until all is settled that was in flight"),
		answer:       named("open connections frozen: until a submission is answered with 202"),
		thawed:       named("all frozen: from the thaw to a debit"),
		answerThawed: named("all frozen: from the thaw to a 202"),
	}
}

func (f frozenFigures) series() []*series {
	return []*series{f.still, f.flight, f.answer, f.thawed, f.answerThawed}
}

// frozenBound is how long dispatch and answers may stand still, in seconds.
const frozenBound = 30

func (f *frozen) run(ctx context.Context) error {
	if err := f.start(ctx); err != nil {
		return err
	}
	var all []*series
	var bounds []ratio
	figures := map[string]frozenFigures{}
	for _, server := range frozenServers {
		one := newFrozenFigures(server)
		figures[server], all = one, append(all, one.series()...)
	}
	for range f.runs {
		for _, server := range frozenServers {
			if err := f.freeze(ctx, server, figures[server]); err != nil {
				return errors.Join(err, f.complaints())
			}
		}
	}
	if err := f.prove(ctx); err != nil {
		return err
	}
	for _, server := range frozenServers {
		for _, s := range figures[server].series() {
			bounds = append(bounds, ratio{Name: s.Name + ", slowest", Value: s.most(), Target: -frozenBound, Unit: "s"})
		}
	}
	if _, broken := f.observed.seen(); len(broken) > 0 {
		return fmt.Errorf("answers that should not be:\n%s", strings.Join(broken, "\n"))
	}
	return f.report(all, bounds)
}

func (f *frozen) start(ctx context.Context) error {
	if err := f.open(ctx); err != nil {
		return err
	}
	if err := f.addPartners(ctx, drainSites); err != nil {
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
	through := append(f.gateway.variables(),
		"SVC_DATABASE_URL="+f.wires["Postgres"].Through(f.local.DatabaseURL), "SVC_REDIS_URL="+f.wires["Redis"].Through(f.local.RedisURL))
	if f.workers, err = f.startWorkers(recoveryWorkers, through...); err != nil {
		return err
	}
	var base string
	if f.apiProc, base, err = f.startAPI(through...); err != nil {
		return err
	}
	id, secret, err := f.newClient(ctx, f.sites[0])
	f.observed = &observer{next: &http.Transport{MaxIdleConnsPerHost: 2}}
	f.prober = client.New(client.Config{
		BaseURL: base, ClientID: id, ClientSecret: secret, MaxRetries: -1,
		HTTP: &http.Client{Timeout: f.patience, Transport: f.observed},
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

// freeze freezes the wires to a server in both ways, under load.
func (f *frozen) freeze(ctx context.Context, server string, to frozenFigures) error {
	if err := f.underLoad(ctx, func() error { return f.freezeOpen(ctx, f.wires[server], to) }); err != nil {
		return err
	}
	return f.underLoad(ctx, func() error { return f.freezeAll(ctx, f.wires[server], to) })
}

// freezeOpen freezes the connections that are open, and measures until work goes on over new ones.
func (f *frozen) freezeOpen(ctx context.Context, w *wire.Wire, to frozenFigures) error {
	if err := errors.Join(f.remember(ctx), w.Begin(1, wire.Fault{FreezeOpen: true})); err != nil {
		return err
	}
	began := time.Now()
	f.gateway.watch(began)
	answered := make(chan float64, 1)
	go func() { answered <- f.untilAnswered(ctx, began) }()
	flight, err := f.within(ctx, func(ctx context.Context) error { return f.awaitRemembered(ctx, "true") })
	if err != nil {
		return err
	}
	to.flight.add(flight)
	to.answer.add(<-answered)
	to.still.add(f.gateway.longestGap(time.Now()).Seconds())
	return w.End(1)
}

// freezeAll freezes all connections for longer than their deadlines, and measures from the thaw.
func (f *frozen) freezeAll(ctx context.Context, w *wire.Wire, to frozenFigures) error {
	if err := w.Begin(1, wire.Fault{Freeze: true}); err != nil {
		return err
	}
	if err := wait(ctx, f.thaw); err != nil {
		return err
	}
	if err := w.End(1); err != nil {
		return err
	}
	began := time.Now()
	answered := make(chan float64, 1)
	go func() { answered <- f.untilAnswered(ctx, began) }()
	before := f.gateway.count()
	thawed, err := f.within(ctx, func(ctx context.Context) error {
		return await(ctx, 10*time.Millisecond, func() (bool, error) { return f.gateway.count() > before, ended(f.workers...) })
	})
	to.thawed.add(thawed)
	to.answerThawed.add(<-answered)
	return err
}

// within returns how many seconds something takes, at most the patience.
func (f *frozen) within(ctx context.Context, do func(context.Context) error) (float64, error) {
	bounded, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	began := time.Now()
	err := do(bounded)
	if bounded.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return time.Since(began).Seconds(), err
}

// untilAnswered submits a batch of one row until that is answered with 202, and returns how many seconds that took,
// at most the patience.
func (f *frozen) untilAnswered(ctx context.Context, began time.Time) float64 {
	f.probes++
	batch := client.Batch{
		BatchReference: fmt.Sprint("probe ", f.probes), Rows: []client.Row{{CustomerReference: "0", RowReference: "0", Amount: 1}},
	}
	for time.Since(began) < f.patience {
		if _, err := f.prober.SubmitBatch(ctx, f.sites[0].ID.String(), batch); err == nil || !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	return time.Since(began).Seconds()
}
