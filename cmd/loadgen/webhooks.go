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
	"partnerbilling/queue"
)

func webhooksCommand(out io.Writer) *cobra.Command {
	h := webhooks{bench: bench{out: out}}
	cmd := h.command("webhooks", "Measure how soon and how fast a worker delivers webhooks, and what it asks of Redis while idle", 3,
		h.run, h.close)
	cmd.Flags().IntVar(&h.endpoints, "endpoints", 1000, "endpoints, each on a port of its own; one in ten hangs")
	cmd.Flags().IntVar(&h.organisations, "organisations", 1000, "organisations that the endpoints' Sites belong to")
	cmd.Flags().IntSliceVar(&h.rates, "rates", []int{100, 500}, "events a second: with none hanging, and with one in ten")
	cmd.Flags().DurationVar(&h.warmUp, "warm-up", 15*time.Second, "time before events count; hanging needs 10 s to build up")
	cmd.Flags().DurationVar(&h.measured, "measure", 40*time.Second, "time in which events count")
	cmd.Flags().IntVar(&h.backlog, "backlog", 20_000, "events of each run flat out")
	cmd.Flags().DurationVar(&h.idle, "idle", 10*time.Second, "time in which an idle worker's Redis commands are counted")
	return cmd
}

// webhooks measures deliveries, from the commit of an event to its arrival at the partner's server.
type webhooks struct {
	bench
	endpoints, organisations int
	rates                    []int // events a second
	warmUp, measured, idle   time.Duration
	backlog                  int

	sites     []models.Site // one for each endpoint
	receivers *receivers
	worker    *worker
}

// hangs says which endpoints do, in those runs in which some do.
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
			to := newLatencies(rate, hanging)
			steps = append(steps, func() error { return h.steady(ctx, rate, hanging, to) })
			all = append(all, to.p50, to.p99)
			targets = append(targets, func() ratio { return ratio{to.p50.Name, to.p50.median(), -15, "ms"} },
				func() ratio { return ratio{to.p99.Name, to.p99.median(), -50, "ms"} })
		}
	}
	flat := flatOut{
		rate: &series{Name: "flat out", Unit: "deliveries/s"}, postgres: &series{Name: "flat out, CPU time of Postgres", Unit: "µs each"},
		redis: &series{Name: "flat out, CPU time of Redis", Unit: "µs each"},
		self:  &series{Name: "flat out, CPU time of worker and receivers", Unit: "µs each"},
	}
	idle := &series{Name: "idle worker", Unit: "Redis commands/s"}
	steps = append(steps, func() error { return h.drain(ctx, flat) }, func() error { return h.countIdle(ctx, idle) })
	for range h.runs { // in turns and in both orders, so that a drift of the machine meets all alike
		for _, step := range steps {
			if err := errors.Join(step(), h.reset(ctx)); err != nil {
				return err
			}
		}
		slices.Reverse(steps)
	}
	targets = append(targets, func() ratio { return ratio{flat.rate.Name, flat.rate.median(), 5000, flat.rate.Unit} },
		func() ratio { return ratio{idle.Name, idle.median(), -200, idle.Unit} })
	var figures []ratio
	for _, target := range targets {
		figures = append(figures, target())
	}
	return h.report(append(all, flat.rate, flat.postgres, flat.redis, flat.self, idle), figures)
}

func (h *webhooks) close() error {
	var err error
	if h.receivers != nil {
		err = h.receivers.close()
	}
	return errors.Join(err, h.bench.close())
}

// seed makes the Sites, each with an endpoint.
func (h *webhooks) seed(ctx context.Context) error {
	var err error
	if h.receivers, err = newReceivers(ctx, h.endpoints); err != nil {
		return err
	}
	h.sites = make([]models.Site, h.endpoints)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for o := range min(h.organisations, h.endpoints) {
		group.Go(func() error {
			sites, err := h.organisation(groupCtx, (h.endpoints-o+h.organisations-1)/h.organisations)
			for i := range sites {
				endpoint := o + i*h.organisations
				h.sites[endpoint] = sites[i]
				_, _, putErr := h.store.PutWebhookEndpoint(groupCtx, h.ring, sites[i].OrganisationID, sites[i].ID, h.receivers.urls[endpoint])
				err = errors.Join(err, putErr)
			}
			return err
		})
	}
	return group.Wait()
}

// insert commits an event for an endpoint, notes when, and tells the dispatcher, as the service does. The worker may be nil.
func (h *webhooks) insert(ctx context.Context, endpoint int, counts bool) error {
	site := h.sites[endpoint]
	id, task, err := h.store.InsertWebhookEvent(ctx, site.OrganisationID, models.NewTraceID(), models.TransactionStatusPush{
		SiteID: models.PushSite{ID: site.ID}, PaymentIntentID: models.NewPaymentIntentID(), TransactionStatus: "Settled",
		OrderID: "order 4711", AmountPaid: new(models.Amount(1250)),
	})
	if err != nil {
		return err
	}
	if counts {
		h.receivers.committed(id.String(), time.Now())
	}
	if h.worker != nil {
		h.worker.dispatcher.Notify([]models.TaskID{task})
	}
	return nil
}

// latencies are where the figures of runs at a steady rate go.
type latencies struct{ p50, p99 *series }

func newLatencies(rate int, hanging bool) latencies {
	name := fmt.Sprintf("commit to received at %d/s, none hanging", rate)
	if hanging {
		name = fmt.Sprintf("commit to received at %d/s, of the others while 10 %% hang", rate)
	}
	return latencies{p50: &series{Name: name + ", p50", Unit: "ms"}, p99: &series{Name: name + ", p99", Unit: "ms"}}
}

// steady lets events come in at the rate, for all endpoints in turn, and measures those of the endpoints that never hang.
func (h *webhooks) steady(ctx context.Context, rate int, hanging bool, to latencies) error {
	if err := h.settle(ctx); err != nil {
		return err
	}
	h.receivers.setHanging(hanging)
	if err := h.startWorker(ctx); err != nil {
		return err
	}
	err := h.pour(ctx, rate)
	spans, awaitErr := h.receivers.await(ctx)
	h.receivers.setHanging(false)
	if err := errors.Join(err, awaitErr, h.stopWorker()); err != nil {
		return err
	}
	slices.Sort(spans)
	to.p50.add(quantile(spans, 0.50))
	to.p99.add(quantile(spans, 0.99))
	return nil
}

// quantile is a quantile of sorted spans in milliseconds; 0 of none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Seconds() * 1000
}

// pour commits events at the rate until the time is over. One that is late does not delay those after it.
func (h *webhooks) pour(ctx context.Context, rate int) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	warm := int(h.warmUp.Seconds() * float64(rate))
	all := warm + int(h.measured.Seconds()*float64(rate))
	began, timer := time.Now(), time.NewTimer(0)
	defer timer.Stop()
	for n := range all {
		select {
		case <-timer.C:
		case <-groupCtx.Done():
			return group.Wait()
		}
		endpoint := n % h.endpoints
		group.Go(func() error { return h.insert(groupCtx, endpoint, n >= warm && !hangs(endpoint)) })
		timer.Reset(time.Until(began.Add(time.Duration(n+1) * time.Second / time.Duration(rate))))
	}
	return group.Wait()
}

// flatOut is where the figures of a backlog go.
type flatOut struct{ rate, postgres, redis, self *series }

// drain measures how fast a backlog is delivered and written down, and what CPU time that takes.
func (h *webhooks) drain(ctx context.Context, to flatOut) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for n := range h.backlog {
		group.Go(func() error { return h.insert(groupCtx, n%h.endpoints, true) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := h.settle(ctx); err != nil {
		return err
	}
	postgres, redis, self := wholeTime(h.local.Postgres.PID()), ownTime(h.local.Redis.PID()), ownTime(os.Getpid())
	began := time.Now()
	if err := h.startWorker(ctx); err != nil {
		return err
	}
	_, err := h.receivers.await(ctx)
	err = errors.Join(err, await(ctx, time.Millisecond, func() (written bool, err error) {
		err = h.store.DB().NewRaw("SELECT count(*) = ? FROM webhook_attempts", h.backlog).Scan(ctx, &written)
		return written, err
	}))
	each := func(used time.Duration) float64 { return float64(used.Microseconds()) / float64(h.backlog) }
	to.rate.add(float64(h.backlog) / time.Since(began).Seconds())
	to.postgres.add(each(wholeTime(h.local.Postgres.PID()) - postgres))
	to.redis.add(each(ownTime(h.local.Redis.PID()) - redis))
	to.self.add(each(ownTime(os.Getpid()) - self))
	return errors.Join(err, h.stopWorker())
}

// countIdle counts what a worker of all queues asks Redis for while there is nothing to do, calls within scripts included.
func (h *webhooks) countIdle(ctx context.Context, to *series) error {
	w, err := h.bench.startWorker(ctx, workerConfig{
		queues: queue.Names(), recurring: slices.Collect(maps.Keys(jobs.Recurring)), rail: instantRail{},
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

// redisCommands is how many commands Redis has carried out.
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

// reset removes what a run has left: retries of hanging endpoints, and what is known of them. All are endpoints that have
// answered so far.
func (h *webhooks) reset(ctx context.Context) error {
	for _, query := range []string{
		"TRUNCATE webhook_events, webhook_places CASCADE", "DELETE FROM outbox",
		fmt.Sprint("UPDATE webhook_endpoints SET failures = 0, open_until = NULL, openings = 0, gone_since = NULL, width = ",
			models.WebhookFullWidth),
		"VACUUM ANALYZE outbox, webhook_endpoints, webhook_secrets, organisations, sites", // events are as in a new deployment
	} {
		if err := h.exec(ctx, query); err != nil {
			return err
		}
	}
	h.receivers.forget()
	return h.redis.FlushDB(ctx).Err()
}

// startWorker starts a worker for all that is about webhooks.
func (h *webhooks) startWorker(ctx context.Context) (err error) {
	h.worker, err = h.bench.startWorker(ctx, workerConfig{
		queues:    []models.Queue{models.QueueWebhooks, models.QueueSweeps},
		recurring: []models.TaskKind{models.TaskReleaseWebhooks},
	})
	return err
}

func (h *webhooks) stopWorker() error {
	w := h.worker
	h.worker = nil
	return w.end()
}
