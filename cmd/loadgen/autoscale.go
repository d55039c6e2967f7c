package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"partnerbilling/deploy/kubernetes"
	"partnerbilling/models"
)

func autoscaleCommand(out io.Writer) *cobra.Command {
	a := autoscale{recovery: recovery{partners: partners{bench: bench{out: out}}}}
	cmd := a.command("autoscale",
		"Measure how the deployed autoscaling changes the number of workers under two waves of rows", 1, a.run, a.close)
	cmd.Flags().IntVar(&a.backlog, "rows", 300_000, "rows of the first wave, submitted at once")
	cmd.Flags().IntVar(&a.second, "second", 100_000,
		"rows of the second wave, submitted once half of the added workers have been removed")
	cmd.Flags().IntVar(&a.batchRows, "batch", models.MaxBatchRows, "rows of a batch")
	cmd.Flags().DurationVar(&a.latency, "latency", 20*time.Millisecond, "latency of the rail")
	cmd.Flags().IntVar(&a.inFlight, "in-flight", 8, "debits in flight per worker")
	cmd.Flags().IntVar(&a.maxReplicas, "max-replicas", 8, "upper bound of the manifest's maxReplicaCount")
	cmd.Flags().Float64Var(&a.speed, "speed", 4,
		"speed of the autoscaler's clock: polls and windows are that much shorter, ages that much larger")
	cmd.Flags().DurationVar(&a.timeout, "timeout", 20*time.Minute, "maximum time of a run")
	a.addSvcFlag(cmd)
	return cmd
}

// autoscale measures the deployed autoscaling as a closed loop, under two waves of batch rows.
// Processes of `svc worker` export metrics, and the queries of the deployed triggers read them. A
// simulated HorizontalPodAutoscaler with the deployed behaviour then starts and terminates the
// processes.
type autoscale struct {
	recovery
	second, batchRows     int
	inFlight, maxReplicas int
	speed                 float64
	timeout               time.Duration

	api     *process
	clients []*batchClient // one for each Site
	fleet   *workerFleet
	scaling kubernetes.Scaling
	queries []promQuery // of the triggers, in their order
	began   time.Time   // of the current run

	desired atomic.Int64 // number of workers that the autoscaler wants
	wave    atomic.Int64 // number of the current wave, from 1
}

// auditTimeout bounds the audit after the runs.
const auditTimeout = 10 * time.Minute

// autoscaleWave is the result of one wave of rows.
type autoscaleWave struct {
	rows    int
	drained time.Duration // from the beginning of the submission until all rows are settled
}

func (a *autoscale) run(ctx context.Context) error {
	if err := a.start(ctx); err != nil {
		return err
	}
	report := newAutoscaleReport(a)
	for range a.runs {
		ctx, cancel := context.WithTimeout(ctx, a.timeout)
		line, waves, err := a.once(ctx)
		cancel()
		if err != nil {
			return errors.Join(err, a.fleet.logs())
		}
		report.add(line, waves)
	}
	if err := errors.Join(a.verify(ctx), a.audit(ctx)); err != nil {
		return err
	}
	return report.print()
}

// start checks the flags, and starts everything that the runs need: the servers, the gateway, the
// API and the minimum number of workers.
func (a *autoscale) start(ctx context.Context) (err error) {
	if a.speed <= 0 || a.inFlight <= 0 || a.latency <= 0 || a.batchRows <= 0 {
		return errors.New("--speed, --in-flight, --latency and --batch must be positive")
	}
	if a.scaling, err = kubernetes.WorkerScaling(); err != nil {
		return err
	}
	a.scaling.MaxReplicas = min(a.scaling.MaxReplicas, max(a.maxReplicas, a.scaling.MinReplicas))
	for _, t := range a.scaling.Triggers {
		q, err := parsePromQuery(t.Query)
		if err != nil {
			return err
		}
		a.queries = append(a.queries, q)
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	if err := a.addPartners(ctx, benchSites); err != nil {
		return err
	}
	if a.gateway, err = a.startGateway(ctx, a.latency); err != nil {
		return err
	}
	env := append(a.gateway.variables(), "SVC_OPS_LISTEN=127.0.0.1:0", fmt.Sprint("SVC_RAIL_CONCURRENCY=", a.inFlight))
	a.fleet = newWorkerFleet(func() (*process, string, error) { return listening(a.startSvc(env, "worker")) })
	var base string
	if a.api, base, err = a.startAPI(a.gateway.variables()...); err != nil {
		return err
	}
	if a.clients, err = a.newBatchClients(ctx, base, submitConcurrency); err != nil {
		return err
	}
	a.desired.Store(int64(a.scaling.MinReplicas))
	return a.fleet.resize(a.scaling.MinReplicas)
}

func (a *autoscale) close() error {
	err := terminateAll(a.api)
	if a.fleet != nil {
		err = errors.Join(err, a.fleet.end())
	}
	if a.gateway != nil {
		err = errors.Join(err, a.gateway.close())
	}
	return errors.Join(err, a.bench.close())
}

// once runs both waves once. Meanwhile the autoscaler runs, and the timeline is recorded.
func (a *autoscale) once(ctx context.Context) (line timeline, waves []autoscaleWave, err error) {
	a.began = time.Now()
	a.wave.Store(0)
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error { return a.control(ctx) })
	group.Go(func() (err error) {
		line, err = a.record(ctx)
		return err
	})
	group.Go(func() (err error) {
		defer stop()
		waves, err = a.waves(ctx)
		return err
	})
	err = group.Wait()
	return line, waves, err
}

// waves submits the two waves, and waits after each until its rows are settled. The second wave
// begins when the autoscaler has given up half of the workers that it added for the first. waves
// returns when the autoscaler wants the minimum number of workers again.
func (a *autoscale) waves(ctx context.Context) (waves []autoscaleWave, err error) {
	lowest := a.scaling.MinReplicas
	for _, rows := range []int{a.backlog, a.second} {
		a.wave.Add(1)
		wave := autoscaleWave{rows: rows}
		began, highest := time.Now(), 0
		if err := a.submitThrough(ctx, a.clients, rows, a.batchRows); err != nil {
			return nil, err
		}
		err := await(ctx, 100*time.Millisecond, func() (bool, error) {
			highest = max(highest, int(a.desired.Load()))
			open, err := a.openRows(ctx)
			return open == 0, errors.Join(err, checkRunning(a.api))
		})
		if err != nil {
			return nil, err
		}
		wave.drained = time.Since(began)
		waves = append(waves, wave)
		target := (highest + lowest) / 2
		if len(waves) == 2 {
			target = lowest
		}
		err = await(ctx, 100*time.Millisecond, func() (bool, error) { return int(a.desired.Load()) <= target, nil })
		if err != nil {
			return nil, err
		}
	}
	return waves, nil
}

// control does the work of KEDA and its HorizontalPodAutoscaler. At the polling interval, it
// evaluates the queries and changes the number of workers.
func (a *autoscale) control(ctx context.Context) error {
	h := newHPA(a.scaling, a.scaledTime())
	return every(ctx, time.Duration(float64(a.scaling.PollingInterval)/a.speed), func() error {
		samples := a.fleet.scrape(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the run has ended, and the samples are incomplete
		}
		readings := make([]reading, len(a.queries))
		for i, q := range a.queries {
			readings[i].value, readings[i].ok = q.eval(samples)
			if q.inSeconds() { // an age: it runs as fast as the autoscaler's clock
				readings[i].value *= a.speed
			}
		}
		desired := h.poll(a.scaledTime(), readings)
		a.desired.Store(int64(desired))
		return a.fleet.resize(desired)
	})
}

// scaledTime returns the time of the autoscaler's clock, which runs speed times as fast as real
// time.
func (a *autoscale) scaledTime() time.Time {
	return a.began.Add(time.Duration(float64(time.Since(a.began)) * a.speed))
}

// record records a moment of the timeline every second, until the context ends.
func (a *autoscale) record(ctx context.Context) (line timeline, err error) {
	_, before, err := a.counts(ctx)
	if err != nil {
		return nil, err
	}
	since := time.Now()
	err = every(ctx, timelineInterval, func() error {
		m, settled, err := a.moment(ctx)
		if err != nil {
			return err
		}
		at := time.Now()
		m.Rate = float64(settled-before) / at.Sub(since).Seconds()
		before, since = settled, at
		line = append(line, m)
		return nil
	})
	return line, ignoreAfterEnd(ctx, err)
}

// moment returns the present state of the loop without its rate, and the number of rows settled so
// far.
func (a *autoscale) moment(ctx context.Context) (m moment, settled int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	backlogs, err := a.store.Backlogs(ctx)
	if err != nil {
		return m, 0, err
	}
	for _, b := range backlogs {
		if b.Queue == models.QueueDebits {
			m.OldestDue = b.OldestDue.Duration().Seconds()
		}
	}
	rows, settled, err := a.counts(ctx)
	m.Second, m.Wave, m.Backlog = time.Since(a.began).Seconds(), int(a.wave.Load()), rows-settled
	m.Desired, m.Running = int(a.desired.Load()), a.fleet.size()
	return m, settled, err
}

// audit runs the service's own audit, and compares the ledger with the gateway's list of debits.
// It returns the number of breaches and the first 20 of them as one error.
func (a *autoscale) audit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	found, err := a.store.Audit(ctx, false)
	if err != nil {
		return err
	}
	broken, err := compareLedger(ctx, a.store, a.gateway)
	for _, v := range found {
		broken = append(broken, fmt.Sprintf("%s: %s: %s", v.Check, v.Subject, v.Detail))
	}
	if n := len(broken); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d breaches:\n%s", n, strings.Join(broken[:min(n, 20)], "\n")))
	}
	return err
}
