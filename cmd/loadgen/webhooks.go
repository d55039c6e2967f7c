package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
)

func webhooksCommand(out io.Writer) *cobra.Command {
	h := webhooks{bench: bench{out: out}}
	cmd := h.command("webhooks", "Measure how soon a worker delivers webhooks, while none and while a tenth of the endpoints hang", 3,
		h.run, h.close)
	cmd.Flags().IntVar(&h.endpoints, "endpoints", 1000, "endpoints, each on a port of its own; one in ten hangs")
	cmd.Flags().IntVar(&h.organisations, "organisations", 1000, "organisations that the endpoints' Sites belong to")
	cmd.Flags().IntVar(&h.rate, "rate", 100, "events a second")
	cmd.Flags().DurationVar(&h.warmUp, "warm-up", 15*time.Second, "time before events count; hanging needs 10 s to build up")
	cmd.Flags().DurationVar(&h.measured, "measure", 40*time.Second, "time in which events count")
	cmd.Flags().IntVar(&h.backlog, "backlog", 10_000, "events of each run flat out")
	return cmd
}

// webhooks measures deliveries, from the commit of an event to its arrival at the partner's server.
type webhooks struct {
	bench
	endpoints, organisations int
	rate                     int // events a second
	warmUp, measured         time.Duration
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
	if err := h.seed(ctx); err != nil {
		return err
	}
	calm := latencies{p50: &series{Name: "commit to received, p50, none hanging", Unit: "ms"}, p99: &series{Name: "p99, none hanging", Unit: "ms"}}
	hanging := latencies{p50: &series{Name: "p50 of the others, 10 % hanging", Unit: "ms"}, p99: &series{Name: "p99 of the others, 10 % hanging", Unit: "ms"}}
	held := &series{Name: "requests that hang at the end of a run", Unit: "requests"}
	flatOut := &series{Name: "flat out", Unit: "deliveries/s"}
	steps := []func() error{
		func() error { return h.steady(ctx, false, calm, nil) },
		func() error { return h.steady(ctx, true, hanging, held) },
		func() error { return h.drain(ctx, flatOut) },
	}
	for range h.runs { // in turns and in both orders, so that a drift of the machine meets all alike
		for _, step := range steps {
			if err := errors.Join(step(), h.reset(ctx)); err != nil {
				return err
			}
		}
		slices.Reverse(steps)
	}
	return h.report([]*series{calm.p50, calm.p99, hanging.p50, hanging.p99, held, flatOut}, []ratio{
		{Name: "p99 of the others, 10 % hanging ÷ none hanging", Value: hanging.p99.median() / calm.p99.median(), Target: -3},
	})
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

// steady lets events come in at the rate, for all endpoints in turn, and measures those of the endpoints that never hang.
func (h *webhooks) steady(ctx context.Context, hanging bool, to latencies, held *series) error {
	if err := h.settle(ctx); err != nil {
		return err
	}
	h.receivers.setHanging(hanging)
	if err := h.startWorker(ctx); err != nil {
		return err
	}
	err := h.pour(ctx)
	if held != nil {
		held.add(float64(h.receivers.held.Load()))
	}
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
func (h *webhooks) pour(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	warm := int(h.warmUp.Seconds() * float64(h.rate))
	all := warm + int(h.measured.Seconds()*float64(h.rate))
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
		timer.Reset(time.Until(began.Add(time.Duration(n+1) * time.Second / time.Duration(h.rate))))
	}
	return group.Wait()
}

// drain measures how fast a backlog is delivered.
func (h *webhooks) drain(ctx context.Context, to *series) error {
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
	began := time.Now()
	if err := h.startWorker(ctx); err != nil {
		return err
	}
	_, err := h.receivers.await(ctx)
	to.add(float64(h.backlog) / time.Since(began).Seconds())
	return errors.Join(err, h.stopWorker())
}

// reset removes what a run has left: retries of hanging endpoints, and what is known of the endpoints.
func (h *webhooks) reset(ctx context.Context) error {
	for _, query := range []string{
		"TRUNCATE webhook_events CASCADE", "DELETE FROM outbox",
		"UPDATE webhook_endpoints SET failures = 0, open_until = NULL, openings = 0, width = 4, gone_since = NULL",
		"VACUUM ANALYZE",
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
