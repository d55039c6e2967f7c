package queue

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// RunInline dispatches the tasks of Notify until the context ends. At its end it releases the
// claimed tasks that were not sent. It logs failures and returns nil.
func (d *Dispatcher) RunInline(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return d.repeat(ctx, "cannot count the fleet", fleetCountInterval, d.fleet.count) })
	group.Go(func() error {
		return d.repeat(ctx, "cannot extend the leases of enqueued tasks", extendInterval, d.extendLeases)
	})
	group.Go(func() error { return d.claimNotified(ctx) })
	for range inlineSenders {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case claimed := <-d.claimed:
					d.logInlineError(ctx, d.sendInline(ctx, claimed))
				}
			}
		})
	}
	defer d.extendRemaining(ctx)
	err := group.Wait()
	d.releaseUnsent(ctx, nil)
	return err
}

// releaseUnsent releases the tasks in unsent, and the claimed tasks that no sender has taken. If
// Postgres does not answer, they are dispatched when their claims expire.
func (d *Dispatcher) releaseUnsent(ctx context.Context, unsent []models.Task) {
	for {
		select {
		case claimed := <-d.claimed:
			unsent = append(unsent, claimed...)
			continue
		default:
		}
		break
	}
	if err := d.release(ctx, unsent); err != nil {
		d.cfg.Log.WarnContext(ctx, "cannot release the claimed tasks", "tasks", len(unsent),
			logs.Outage(err), "error", err)
	}
}

// collectNotified appends notified tasks that are waiting already. It stops once it has at least
// inlineClaimSize tasks.
func (d *Dispatcher) collectNotified(tasks []models.TaskID) []models.TaskID {
	for len(tasks) < inlineClaimSize {
		select {
		case more := <-d.notified:
			tasks = append(tasks[:len(tasks):len(tasks)], more...)
		default:
			return tasks
		}
	}
	return tasks
}

// claimNotified claims the tasks of Notify and hands them to the senders, until the context ends.
// Only one claim runs at a time. It takes the tasks that were notified during the claim before it.
func (d *Dispatcher) claimNotified(ctx context.Context) error {
	interval := time.NewTicker(inlineClaimInterval) // holds one tick while there is nothing to claim
	defer interval.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case tasks := <-d.notified:
			select {
			case <-ctx.Done():
				return nil
			case <-interval.C:
			}
			claimed, err := d.claim(ctx, d.collectNotified(tasks))
			d.logInlineError(ctx, err)
			if len(claimed) == 0 {
				continue
			}
			select {
			case d.claimed <- claimed:
			case <-ctx.Done():
				d.releaseUnsent(ctx, claimed)
			}
		}
	}
}

// claim claims notified tasks, as far as the bounds of their queues allow. It leaves the others to
// the workers' loops.
func (d *Dispatcher) claim(ctx context.Context, ids []models.TaskID) ([]models.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	webhooks := d.bounds(models.QueueWebhooks)
	if d.isCapacityExpired() {
		n, err := d.store.InFlight(ctx, models.QueueWebhooks)
		if err != nil {
			return nil, err
		}
		d.capacityExpired = time.After(capacityTTL)
		// Inline claims leave MinRoom free for the workers' loops, which claim nothing below it.
		// Otherwise a steady flow of new webhooks would starve the waiting ones.
		d.webhookCapacity = webhooks.Total - webhooks.MinRoom - n
	}
	webhooks.Limit = max(0, d.webhookCapacity)
	// While no worker serves debits or webhooks, nothing is claimed from that queue. Otherwise
	// Redis would fill up: tasks with an expired lease do not count against the bounds, and only
	// workers make them due again.
	debits := d.bounds(models.QueueDebits)
	if d.fleet.isAbsent(models.QueueDebits) {
		debits.InFlight = 0
	}
	if d.fleet.isAbsent(models.QueueWebhooks) {
		webhooks.Limit = 0
	}
	claimed, err := d.store.ClaimTasks(ctx, ids, debits, webhooks)
	for _, t := range claimed {
		if t.Kind.Queue() == models.QueueWebhooks {
			d.webhookCapacity--
		}
	}
	return claimed, err
}

// isCapacityExpired reports whether the webhooks in flight must be counted again.
func (d *Dispatcher) isCapacityExpired() bool {
	if d.capacityExpired == nil {
		return true
	}
	select {
	case <-d.capacityExpired:
		d.capacityExpired = nil // stays expired if the count fails
		return true
	default:
		return false
	}
}

// sendInline sends the tasks of each queue separately: in a Cluster, the server of one queue may
// fail while the others work.
func (d *Dispatcher) sendInline(ctx context.Context, claimed []models.Task) error {
	ctx, cancel := context.WithTimeout(ctx, inlineTimeout)
	defer cancel()
	queues := map[models.Queue][]models.Task{}
	for _, t := range claimed {
		queues[t.Kind.Queue()] = append(queues[t.Kind.Queue()], t)
	}
	var group errgroup.Group
	for _, tasks := range queues {
		group.Go(func() error { return d.send(ctx, tasks) })
	}
	return group.Wait()
}

// logInlineError logs a non-nil error, unless the dispatcher is shutting down.
func (d *Dispatcher) logInlineError(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.WarnContext(ctx, "inline dispatch failed; the workers' loops take over",
			logs.Outage(err), "error", err)
	}
}
