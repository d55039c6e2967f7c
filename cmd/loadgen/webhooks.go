package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"partnerbilling/jobs"
	"partnerbilling/models"
	"partnerbilling/models/postgres"
)

func webhooksCommand(out io.Writer) *cobra.Command {
	h := webhooks{bench: bench{out: out}}
	cmd := h.command("webhooks",
		"Measure how soon and how fast a worker delivers webhooks, and its Redis commands while idle", 3,
		h.run, h.close)
	cmd.Flags().IntVar(&h.endpoints, "endpoints", 1000,
		"number of endpoints, each on a port of its own; one in ten hangs")
	cmd.Flags().IntVar(&h.organisations, "organisations", 1000, "number of organisations of the endpoints' Sites")
	cmd.Flags().IntSliceVar(&h.rates, "rates", []int{100, 500},
		"events per second, each without and with hanging endpoints")
	cmd.Flags().DurationVar(&h.warmUp, "warm-up", 15*time.Second,
		"time before events are measured; hanging requests take 10 s to accumulate")
	cmd.Flags().DurationVar(&h.measured, "measure", 40*time.Second, "duration of the measurement")
	cmd.Flags().IntVar(&h.backlog, "backlog", 20_000, "events of each run at full speed")
	cmd.Flags().DurationVar(&h.idle, "idle", 10*time.Second, "duration of the count of an idle worker's Redis commands")
	return cmd
}

// webhooks measures how a worker delivers webhook events: the time from the commit of an event to
// its arrival at the receiver, the rate of deliveries, and the Redis commands of an idle worker.
type webhooks struct {
	bench
	endpoints, organisations int
	rates                    []int // events per second, each measured on its own
	warmUp, measured, idle   time.Duration
	backlog                  int // events of a run at full speed

	sites     []models.Site // by endpoint
	receivers *receivers
	worker    *worker // nil while none runs
}

// hangs reports whether the endpoint hangs in runs with hanging endpoints.
func hangs(endpoint int) bool { return endpoint%10 == 9 }

func (h *webhooks) run(ctx context.Context) error {
	if err := h.open(ctx); err != nil {
		return err
	}
	if err := errors.Join(h.seed(ctx), h.reset(ctx)); err != nil {
		return err
	}
	var steps []func() error
	var all []*series
	var targets []func() ratio
	for _, rate := range h.rates {
		for _, hanging := range []bool{false, true} {
			to := newLatencySeries(rate, hanging)
			steps = append(steps, func() error { return h.steady(ctx, rate, hanging, to) })
			all = append(all, to.p50, to.p99)
			targets = append(targets, func() ratio { return to.p50.bounded(-15) },
				func() ratio { return to.p99.bounded(-50) })
		}
	}
	full := throughputSeries{
		rate:     &series{Name: "flat out", Unit: "deliveries/s"},
		postgres: &series{Name: "flat out, CPU time of Postgres", Unit: "µs each"},
		redis:    &series{Name: "flat out, CPU time of Redis", Unit: "µs each"},
		self:     &series{Name: "flat out, CPU time of worker and receivers", Unit: "µs each"},
	}
	idle := &series{Name: "idle worker", Unit: "Redis commands/s"}
	steps = append(steps, func() error { return h.drain(ctx, full) }, func() error { return h.countIdle(ctx, idle) })
	for range h.runs { // in alternating order, so that a drift of the machine affects all
		for _, step := range steps {
			if err := errors.Join(step(), h.reset(ctx)); err != nil {
				return err
			}
		}
		slices.Reverse(steps)
	}
	targets = append(targets, func() ratio { return full.rate.bounded(5000) },
		func() ratio { return idle.bounded(-200) })
	var ratios []ratio
	for _, target := range targets {
		ratios = append(ratios, target())
	}
	return h.report(append(all, full.rate, full.postgres, full.redis, full.self, idle), ratios)
}

func (h *webhooks) close() error {
	var err error
	if h.receivers != nil {
		err = h.receivers.close()
	}
	return errors.Join(err, h.bench.close())
}

// seed starts the receivers, and creates the organisations and their Sites, each with an endpoint.
func (h *webhooks) seed(ctx context.Context) error {
	var err error
	if h.receivers, err = newReceivers(ctx, h.endpoints); err != nil {
		return err
	}
	h.sites = make([]models.Site, h.endpoints)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	ring, err := keyring()
	if err != nil {
		return err
	}
	for o := range min(h.organisations, h.endpoints) {
		group.Go(func() error {
			sites, err := h.organisation(groupCtx, (h.endpoints-o+h.organisations-1)/h.organisations)
			for i := range sites {
				endpoint := o + i*h.organisations
				h.sites[endpoint] = sites[i]
				_, _, putErr := h.store.PutWebhookEndpoint(
					groupCtx, ring, sites[i].OrganisationID, sites[i].ID, h.receivers.urls[endpoint])
				err = errors.Join(err, putErr)
			}
			return err
		})
	}
	return group.Wait()
}

// insert commits an event for an endpoint, and notifies the dispatcher of the worker if one runs.
// If measured is set, it records the time of the commit.
func (h *webhooks) insert(ctx context.Context, endpoint int, measured bool) error {
	id, task, err := h.insertEvent(ctx, h.sites[endpoint])
	if err != nil {
		return err
	}
	if measured {
		h.receivers.committed(id.String(), time.Now())
	}
	if h.worker != nil {
		h.worker.dispatcher.Notify([]models.TaskID{task})
	}
	return nil
}

// insertEvent commits a webhook event of a Site with its task.
func (b *bench) insertEvent(
	ctx context.Context, site models.Site,
) (id models.WebhookEventID, task models.TaskID, err error) {
	push := models.TransactionStatusPush{
		SiteID: models.PushSite{ID: site.ID}, PaymentIntentID: models.NewPaymentIntentID(),
		TransactionStatus: "Settled", OrderID: "order 4711", AmountPaid: new(models.Amount(1250)),
	}
	for range 21 { // a connection attempt may fail on a busy machine
		id, task, err = b.store.InsertWebhookEvent(ctx, site.OrganisationID, models.NewTraceID(), push)
		if !errors.Is(err, postgres.ErrUnavailable) || wait(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return id, task, err
}

// latencySeries holds percentiles of latencies in ms. Each series has one value for each run.
type latencySeries struct{ p50, p99 *series }

func newLatencySeries(rate int, hanging bool) latencySeries {
	name := fmt.Sprintf("commit to received at %d/s, none hanging", rate)
	if hanging {
		name = fmt.Sprintf("commit to received at %d/s, of the others while 10 %% hang", rate)
	}
	return latencySeries{
		p50: &series{Name: name + ", p50", Unit: "ms"}, p99: &series{Name: name + ", p99", Unit: "ms"},
	}
}

// steady commits events at a rate per second, and measures the latency at the nine in ten endpoints
// that never hang. If hanging is set, the other endpoints hang meanwhile.
func (h *webhooks) steady(ctx context.Context, rate int, hanging bool, to latencySeries) error {
	if err := h.checkpoint(ctx); err != nil {
		return err
	}
	h.receivers.setHanging(hanging)
	if err := h.startWorker(ctx); err != nil {
		return err
	}
	err := h.commitToAll(ctx, rate)
	latencies, awaitErr := h.receivers.await(ctx)
	h.receivers.setHanging(false)
	if err := errors.Join(err, awaitErr, h.stopWorker()); err != nil {
		return err
	}
	slices.Sort(latencies)
	to.p50.add(quantile(latencies, 0.50))
	to.p99.add(quantile(latencies, 0.99))
	return nil
}

// commitToAll commits events for all endpoints in rotation. It marks an event as measured if it
// comes after the warm-up, and its endpoint never hangs.
func (h *webhooks) commitToAll(ctx context.Context, rate int) error {
	warm := callsIn(h.warmUp, float64(rate))
	all := warm + callsIn(h.measured, float64(rate))
	return pace(ctx, float64(rate), all, func(ctx context.Context, n int, _ time.Time) error {
		endpoint := n % h.endpoints
		return h.insert(ctx, endpoint, n >= warm && !hangs(endpoint))
	})
}

// throughputSeries holds the results of the runs on a backlog: the rate of deliveries, and the CPU
// time of Postgres, Redis and this process per delivery.
type throughputSeries struct{ rate, postgres, redis, self *series }

// drain measures how fast a new worker delivers a backlog and records the attempts, and the CPU
// time per event.
func (h *webhooks) drain(ctx context.Context, to throughputSeries) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for n := range h.backlog {
		group.Go(func() error { return h.insert(groupCtx, n%h.endpoints, true) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := h.checkpoint(ctx); err != nil {
		return err
	}
	postgres, redis, self := treeCPUTime(h.local.Postgres.PID()), cpuTime(h.local.Redis.PID()), cpuTime(os.Getpid())
	began := time.Now()
	if err := h.startWorker(ctx); err != nil {
		return err
	}
	_, err := h.receivers.await(ctx)
	if err == nil {
		err = h.awaitAttempts(ctx, h.backlog)
	}
	each := func(used time.Duration) float64 { return float64(used.Microseconds()) / float64(h.backlog) }
	to.rate.add(float64(h.backlog) / time.Since(began).Seconds())
	to.postgres.add(each(treeCPUTime(h.local.Postgres.PID()) - postgres))
	to.redis.add(each(cpuTime(h.local.Redis.PID()) - redis))
	to.self.add(each(cpuTime(os.Getpid()) - self))
	return errors.Join(err, h.stopWorker())
}

// awaitAttempts waits until at least n attempts are recorded. Retries count too.
func (h *webhooks) awaitAttempts(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, arrivalTimeout)
	defer cancel()
	recorded := 0
	err := await(ctx, time.Millisecond, func() (bool, error) {
		err := h.store.DB().NewRaw("SELECT count(*) FROM webhook_attempts").Scan(ctx, &recorded)
		return recorded >= n, err
	})
	if err != nil {
		err = fmt.Errorf("%d of %d attempts are recorded: %w", recorded, n, err)
	}
	return err
}

// countIdle counts the Redis commands per second of an idle worker on all queues, including
// commands within scripts.
func (h *webhooks) countIdle(ctx context.Context, to *series) error {
	w, err := h.bench.startWorker(ctx, workerConfig{
		queues: models.Queues, recurring: slices.Collect(maps.Keys(jobs.Recurring)), rail: instantRail{},
	})
	if err != nil {
		return err
	}
	before, err := h.redisCommands(ctx)
	select {
	case <-ctx.Done():
	case <-time.After(h.idle):
	}
	after, afterErr := h.redisCommands(ctx)
	to.add((after - before) / h.idle.Seconds())
	return errors.Join(err, afterErr, ctx.Err(), w.end())
}

// redisCommands returns the number of commands that Redis has executed so far.
func (h *webhooks) redisCommands(ctx context.Context) (calls float64, err error) {
	info, err := h.redis.Info(ctx, "commandstats").Result()
	for line := range strings.Lines(info) {
		if _, rest, ok := strings.Cut(line, ":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			count, parseErr := strconv.ParseFloat(n, 64)
			calls, err = calls+count, errors.Join(err, parseErr)
		}
	}
	return calls, err
}

// reset deletes all events and tasks, and closes the breakers of all endpoints. No worker may run.
func (h *webhooks) reset(ctx context.Context) error {
	for _, query := range []string{
		"TRUNCATE webhook_events, webhook_attempts, webhook_slots", "DELETE FROM outbox",
		fmt.Sprint("UPDATE webhook_endpoints SET failures = 0, open_until = NULL, openings = 0, gone_since = NULL, ",
			"width = ", models.WebhookFullWidth),
		// The table webhook_events stays without statistics, as in a new deployment.
		"VACUUM ANALYZE outbox, webhook_endpoints, webhook_secrets, organisations, sites",
	} {
		if err := h.exec(ctx, query); err != nil {
			return err
		}
	}
	h.receivers.reset()
	return h.redis.FlushDB(ctx).Err()
}

// startWorker starts a worker for webhooks and their sweeps.
func (h *webhooks) startWorker(ctx context.Context) (err error) {
	h.worker, err = h.bench.startWorker(ctx, workerConfig{
		queues:    []models.Queue{models.QueueWebhooks, models.QueueSweeps},
		recurring: []models.TaskKind{models.TaskReleaseWebhooks},
	})
	return err
}

// stopWorker stops the worker and waits for its end.
func (h *webhooks) stopWorker() error {
	w := h.worker
	h.worker = nil
	return w.end()
}
