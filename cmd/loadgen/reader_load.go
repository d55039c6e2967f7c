package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
)

// readerLoad is the steady load of the scenario reader, in items per second. A batch has 1000 rows.
type readerLoad struct{ batches, payments, events int }

// readerSweeps lists the kinds of recurring tasks that run beside the load. It leaves out those
// that compare or remove old work.
var readerSweeps = []models.TaskKind{
	models.TaskReleaseWebhooks, models.TaskExpireInvitations, models.TaskExpirePaymentIntents, models.TaskCloseBatches,
}

// runningLoad is a load that runs until end is called.
type runningLoad struct {
	stop  context.CancelFunc
	group *errgroup.Group
}

// startLoad submits batches, payments and events at a steady rate until end is called. It notifies
// the dispatcher of w of every second item of a Site, as the API would. The dispatcher must find
// the other items by its polls.
func (r *reader) startLoad(ctx context.Context, w *worker) *runningLoad {
	ctx, stop := context.WithCancel(ctx)
	load := &runningLoad{stop: stop}
	load.group, ctx = errgroup.WithContext(ctx)
	run := rand.Text() // so that no batch replays one of an earlier run
	begin := func(rate int, do func(ctx context.Context, n int, site models.Site) ([]models.TaskID, error)) {
		if rate == 0 {
			return
		}
		load.group.Go(func() error {
			err := pace(ctx, float64(rate), math.MaxInt, func(ctx context.Context, n int, _ time.Time) error {
				// A call that has begun is completed.
				tasks, err := do(context.WithoutCancel(ctx), n, r.sites[n%len(r.sites)])
				if r.isTold(n) {
					w.dispatcher.Notify(tasks)
				}
				return err
			})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})
	}
	begin(r.load.batches, func(ctx context.Context, n int, site models.Site) ([]models.TaskID, error) {
		done, err := r.store.SubmitBatch(ctx, batchOf(site, fmt.Sprintf("load %d of %s", n, run), models.MaxBatchRows))
		return done.Tasks, err
	})
	begin(r.load.payments, func(ctx context.Context, _ int, site models.Site) ([]models.TaskID, error) {
		task, err := r.startPayment(ctx, site)
		return []models.TaskID{task}, err
	})
	begin(r.load.events, func(ctx context.Context, _ int, site models.Site) ([]models.TaskID, error) {
		_, task, err := r.insertEvent(ctx, site)
		return []models.TaskID{task}, err
	})
	return load
}

// isTold reports whether the dispatcher is notified of the item with the number n.
func (r *reader) isTold(n int) bool { return n/len(r.sites)%2 == 0 }

// startPayment creates a payment intent that a customer begins to pay.
func (b *bench) startPayment(ctx context.Context, site models.Site) (models.TaskID, error) {
	ctx = models.WithTraceID(ctx, models.NewTraceID())
	in := models.NewPaymentIntent{
		SiteID: site.ID, OrganisationID: site.OrganisationID, Amount: 1250, QRCodeFormat: models.QRCodeText,
	}
	intent, _, err := b.store.CreatePaymentIntent(ctx, in, nil)
	if err != nil {
		return models.TaskID{}, err
	}
	party := models.Party{CustomerID: "payer", AgreementID: "payer"}
	started, err := b.store.StartTransaction(ctx, intent.Code, party, nil)
	return started.Task, err
}

// end stops the load, waits for calls that have begun, and returns the first error.
func (l *runningLoad) end() error {
	l.stop()
	return l.group.Wait()
}
