package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
	"partnerbilling/models/logs"
	"partnerbilling/models/tracing"
)

const (
	// inlineTimeout bounds the Redis calls of an inline dispatch. The workers' loops dispatch the
	// tasks that Redis has not accepted by then. Statements have the longer storeTimeout, because a
	// cancelled statement closes its connection. A new connection costs a busy Postgres more than
	// the statement.
	inlineTimeout = 50 * time.Millisecond
	// inlineBuffer is the number of calls of Notify whose tasks may wait for their claim, and of
	// claims whose tasks may wait to be sent. The workers' loops dispatch the tasks of further
	// calls.
	inlineBuffer = 1024
	// idlePoll is the time between two polls of an idle queue by the loops of all workers together.
	idlePoll = 100 * time.Millisecond
	// busyPoll replaces idlePoll while a queue is busy, so that workers do not run out of tasks.
	busyPoll = 10 * time.Millisecond
	// busyWebhookPoll is busyPoll for webhooks. It is longer: a poll for webhooks costs more, and
	// the tasks in flight keep the workers busy until the next poll.
	busyWebhookPoll = 50 * time.Millisecond
	// busyRounds is the number of consecutive empty polls after which a queue counts as idle.
	busyRounds = 100
	// errorBackoff is the pause of a loop after an error of Postgres or Redis.
	errorBackoff = time.Second
	// storeTimeout bounds an inline claim, a release, or the last lease extension.
	storeTimeout = time.Second
	// housekeepInterval is the time between two rounds of housekeeping.
	housekeepInterval = 500 * time.Millisecond
	// claimLimit is the maximum number of tasks in one claim of a poll.
	claimLimit = 100
	// webhookClaimLimit is claimLimit for webhooks. They are many and small, and the cost of a
	// claim grows with the number of organisations that have due webhooks.
	webhookClaimLimit = 2000
	// inlineClaimInterval is the interval of the ticks that claims of notified tasks wait for. The
	// first claim after a pause needs no wait. At a steady rate one claim thus takes the tasks of
	// many commits, and a task waits a little.
	inlineClaimInterval = 3 * time.Millisecond
	// inlineClaimSize is the number of notified tasks at which a claim stops collecting more.
	inlineClaimSize = 256
	// inlineSenders is the number of inline dispatches that enqueue concurrently.
	inlineSenders = 4
	// capacityTTL is how long a count of the webhooks in flight is valid.
	capacityTTL = 100 * time.Millisecond
	// enqueueConcurrency is the number of concurrent enqueues of one dispatch. Each is a round trip
	// to Redis.
	enqueueConcurrency = 8
)

// Dispatcher sends due tasks from the outbox to Redis. The API runs RunInline, which dispatches
// tasks right after the commits that wrote them. Workers run Run, which also polls the outbox.
// Notify is safe for concurrent use. Run, or else RunInline, must be called at most once.
type Dispatcher struct {
	store    *models.Store
	redis    redis.UniversalClient
	tasks    *asynq.Client
	cfg      DispatcherConfig
	notified chan []models.TaskID // committed, not claimed
	claimed  chan []models.Task   // claimed, not enqueued
	fleet    *fleet
	enqueued enqueuedTasks
	reclaims reclaims // only the goroutine of housekeep uses it

	// webhookCapacity is the number of webhooks that inline claims may still put in flight. The
	// number is valid until capacityExpired fires. Only the goroutine of claimNotified uses these
	// two fields.
	webhookCapacity int
	capacityExpired <-chan time.Time
}

// DispatcherConfig tunes a Dispatcher.
type DispatcherConfig struct {
	// InFlight is the maximum number of tasks in flight for one organisation in one queue; for
	// webhooks the store allows a multiple. It keeps the backlog of one organisation from delaying
	// another. 0 means the default: half of the fleet's slots for debits, 16 for each other queue.
	InFlight int
	// Recurring maps each recurring kind of task to the interval between its runs.
	Recurring map[models.TaskKind]time.Duration
	Tracer    *tracing.Tracer  // nil records nothing
	Now       func() time.Time // clock of the process, for spans and intervals; default time.Now
	Log       *slog.Logger
}

// NewDispatcher returns a dispatcher. It does nothing until Run or RunInline.
func NewDispatcher(store *models.Store, client redis.UniversalClient, cfg DispatcherConfig) *Dispatcher {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Dispatcher{
		store: store, redis: client, tasks: asynq.NewClientFromRedisClient(client), cfg: cfg, fleet: newFleet(client),
		notified: make(chan []models.TaskID, inlineBuffer), claimed: make(chan []models.Task, inlineBuffer),
	}
}

// Workers returns the number of running workers, as last counted: 0 before the first count. If
// Redis does not answer, the last count stays valid.
func (d *Dispatcher) Workers() int { return int(d.fleet.workers.Load()) }

// Notify queues tasks for inline dispatch, right after the commit that wrote them. It never blocks:
// if the buffer is full, the workers' loops find the tasks.
func (d *Dispatcher) Notify(tasks []models.TaskID) {
	if len(tasks) == 0 {
		return
	}
	select {
	case d.notified <- tasks:
	default:
	}
}

// Run dispatches all due tasks until the context ends: those of Notify, and those that its polls of
// the outbox find. It also does the housekeeping. It logs failures and returns nil. Every worker
// runs it; the store lets only one poll at a time claim from a queue.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.detectLossFirst(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.RunInline(ctx) })
	group.Go(func() error { return d.pace(ctx, "housekeeping failed", d.housekeep) })
	for _, q := range models.Queues {
		group.Go(func() error { return d.runQueue(ctx, q) })
	}
	defer d.extendRemaining(ctx)
	return group.Wait()
}

// runQueue dispatches the due tasks of one queue until the context ends. It polls the outbox at
// once after a full claim, often while the queue is busy, and rarely while the queue is idle.
func (d *Dispatcher) runQueue(ctx context.Context, q models.Queue) error {
	emptyRounds := busyRounds
	return d.pace(ctx, "dispatch failed", func(ctx context.Context) (time.Duration, error) {
		bounds := d.bounds(q)
		n, err := d.dispatchDue(ctx, bounds)
		if n > 0 {
			emptyRounds = 0
		} else {
			emptyRounds = min(emptyRounds+1, busyRounds)
		}
		switch {
		case n == bounds.Limit:
			return 0, err
		case emptyRounds < busyRounds && q == models.QueueWebhooks:
			return d.fleet.perWorker(busyWebhookPoll), err
		case emptyRounds < busyRounds:
			return d.fleet.perWorker(busyPoll), err
		default:
			return d.fleet.perWorker(idlePoll), err
		}
	})
}

// repeat calls do at every interval until the context ends. It logs an error of do as failure.
func (d *Dispatcher) repeat(
	ctx context.Context, failure string, interval time.Duration, do func(context.Context) error,
) error {
	return d.pace(ctx, failure, func(ctx context.Context) (time.Duration, error) { return interval, do(ctx) })
}

// pace calls do until the context ends. Each call returns the pause before the next. pace logs an
// error of do as failure, and pauses for errorBackoff.
func (d *Dispatcher) pace(
	ctx context.Context, failure string, do func(context.Context) (time.Duration, error),
) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		pause, err := do(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			d.cfg.Log.WarnContext(ctx, failure, logs.Outage(err), "error", err)
			pause = errorBackoff
		}
		timer.Reset(pause)
	}
}

// bounds returns the bounds of a claim from a queue.
//
// The total of debit tasks in flight is below the fleet's slots, so that each task runs at once,
// and sweeps find a slot. A task without a slot would wait in Redis for all earlier tasks, whatever
// their organisation, and on a slow rail longer than its lease lasts. The default for one
// organisation is below the total. DispatcherConfig.InFlight may exceed both, and then raises the
// total.
func (d *Dispatcher) bounds(q models.Queue) models.Dispatch {
	b := models.Dispatch{Queue: q, Limit: claimLimit, InFlight: 16}
	switch q {
	case models.QueueDebits:
		slots := d.fleet.slots(q)
		b.InFlight, b.Total = max(1, slots/2), max(1, slots*3/4)
	case models.QueueWebhooks:
		// Total must exceed MinRoom: see models.Dispatch.
		slots := max(d.fleet.slots(q), defaultSlots[q])
		b.Limit, b.Total, b.MinRoom = webhookClaimLimit, 4*slots, webhookClaimLimit*3/4
	case models.QueueCheckout, models.QueueSweeps: // few tasks at a time
	}
	if d.cfg.InFlight > 0 {
		b.InFlight = d.cfg.InFlight
	}
	if b.Total > 0 {
		b.Total = max(b.Total, b.InFlight)
	}
	return b
}

// dispatchDue claims due tasks and sends them. It returns the number of claimed tasks.
func (d *Dispatcher) dispatchDue(ctx context.Context, bounds models.Dispatch) (int, error) {
	tasks, err := d.store.ClaimDue(ctx, bounds)
	if err != nil {
		return 0, err
	}
	return len(tasks), d.send(ctx, tasks)
}

// send enqueues claimed tasks, wakes idle workers, and releases the tasks that Redis does not
// accept. It holds no database transaction open. A crash in send delays the tasks by the short
// lease of their claims.
func (d *Dispatcher) send(ctx context.Context, claimed []models.Task) error {
	if len(claimed) == 0 {
		return nil
	}
	began := d.cfg.Now()
	bundles := makeBundles(claimed)
	accepted := make([]bool, len(bundles))
	group, enqueueCtx := errgroup.WithContext(ctx)
	group.SetLimit(enqueueConcurrency)
	for i, bundle := range bundles {
		group.Go(func() error {
			// A task id conflict only means that this dispatch was enqueued before. If no worker
			// runs it, the lease expires, and the next dispatch has another task id.
			_, err := d.tasks.EnqueueContext(enqueueCtx, newBundle(bundle))
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				return logs.OfRedis(err)
			}
			accepted[i] = true
			return nil
		})
	}
	err := errors.Join(group.Wait(), publishWakeUps(ctx, d.redis, claimed))
	for i, bundle := range bundles {
		d.cfg.Tracer.Dispatched(ctx, bundle, began, accepted[i])
	}
	return errors.Join(err, d.recordSent(ctx, bundles, accepted))
}

// recordSent remembers the tasks that Redis accepted, for extendLeases, and releases the others.
func (d *Dispatcher) recordSent(ctx context.Context, bundles [][]models.Task, accepted []bool) error {
	var unsent []models.Task
	for i, bundle := range bundles {
		if accepted[i] {
			d.enqueued.add(bundle)
		} else {
			unsent = append(unsent, bundle...)
		}
	}
	return d.release(ctx, unsent)
}

// release makes claimed tasks due again at once. It does so even if the context has ended.
func (d *Dispatcher) release(ctx context.Context, unsent []models.Task) error {
	if len(unsent) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return d.store.ReleaseTasks(ctx, unsent)
}
