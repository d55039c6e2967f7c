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
)

const (
	// inlineWithin bounds the part of Redis in the dispatch right after a commit; the workers' loop makes up for what it did
	// not reach. Postgres has longer: a statement that is cut off costs its connection, and making another costs a busy
	// server more than the statement would.
	inlineWithin = 50 * time.Millisecond
	// inlineQueue is how many commits may wait for their inline dispatch; more are left to the workers' loop.
	inlineQueue = 1024
	// pollEvery is how often the loop looks for due tasks, while it finds none.
	pollEvery = 100 * time.Millisecond
	// pauseAfter is how long the loop waits after Postgres or Redis failed it.
	pauseAfter = time.Second
	// housekeepEvery is how often lost tasks, a flushed Redis and recurring work are looked for.
	housekeepEvery = 500 * time.Millisecond
	// claimLimit is the most tasks that one claim takes, and webhooksLimit of webhooks: those are small and many, and a
	// claim's cost grows with the organisations that have some.
	claimLimit    = 100
	webhooksLimit = 1000
	// enqueueConcurrency is how many enqueues are under way at once: each is a round trip to Redis.
	enqueueConcurrency = 8
)

// Dispatcher sends due tasks from the outbox to Redis. The API uses its inline half, the workers' both.
type Dispatcher struct {
	store *models.Store
	redis *redis.Client
	tasks *asynq.Client
	cfg   DispatcherConfig
	fresh chan []models.TaskID
}

// DispatcherConfig tunes a Dispatcher.
type DispatcherConfig struct {
	// InFlight is the most tasks of one queue that one organisation may have in Redis or in work, so that a large
	// backlog of one never stands in the way of another. Default 16.
	InFlight int
	// Recurring is the work that starts by itself, and how often.
	Recurring map[models.TaskKind]time.Duration
	Log       *slog.Logger
}

// NewDispatcher makes a dispatcher; nothing runs until RunInline or Run.
func NewDispatcher(store *models.Store, client *redis.Client, cfg DispatcherConfig) *Dispatcher {
	if cfg.InFlight <= 0 {
		cfg.InFlight = 16
	}
	return &Dispatcher{
		store: store, redis: client, tasks: asynq.NewClientFromRedisClient(client), cfg: cfg,
		fresh: make(chan []models.TaskID, inlineQueue),
	}
}

// Notify tells the dispatcher of tasks, all of one organisation and kind, whose transaction has just been committed. It
// never waits; what does not fit is found by the workers' loop.
func (d *Dispatcher) Notify(tasks []models.TaskID) {
	if len(tasks) == 0 {
		return
	}
	select {
	case d.fresh <- tasks:
	default:
	}
}

// RunInline dispatches what Notify tells of, until the context ends.
func (d *Dispatcher) RunInline(ctx context.Context) error {
	var group errgroup.Group
	for range enqueueConcurrency {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case tasks := <-d.fresh:
					d.dispatchFresh(ctx, tasks)
				}
			}
		})
	}
	return group.Wait()
}

func (d *Dispatcher) dispatchFresh(ctx context.Context, ids []models.TaskID) {
	claimCtx, cancel := context.WithTimeout(ctx, pauseAfter)
	defer cancel()
	claimed, err := d.store.ClaimTasks(claimCtx, ids, d.cfg.InFlight)
	if err == nil {
		sendCtx, cancel := context.WithTimeout(ctx, inlineWithin)
		defer cancel()
		err = d.send(sendCtx, claimed)
	}
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.WarnContext(ctx, "inline dispatch failed; the workers' loop takes over", "error", err)
	}
}

// Run dispatches due tasks until the context ends: the loop of every worker. Only one of them claims at a time, and it does
// not matter which.
func (d *Dispatcher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.RunInline(ctx) })
	group.Go(func() error { return d.repeat(ctx, housekeepEvery, d.housekeep) })
	for _, q := range Names() {
		group.Go(func() error {
			return d.repeat(ctx, pollEvery, func(ctx context.Context) (bool, error) { return d.dispatchDue(ctx, q) })
		})
	}
	return group.Wait()
}

// repeat calls do, again at once while it reports more, else after the pause.
func (d *Dispatcher) repeat(ctx context.Context, pause time.Duration, do func(context.Context) (bool, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		more, err := do(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			d.cfg.Log.WarnContext(ctx, "dispatch failed", "error", err)
			timer.Reset(pauseAfter)
		case more:
			timer.Reset(0)
		default:
			timer.Reset(pause)
		}
	}
}

func (d *Dispatcher) dispatchDue(ctx context.Context, q models.Queue) (bool, error) {
	limit := claimLimit
	if q == models.QueueWebhooks {
		limit = webhooksLimit
	}
	tasks, err := d.store.ClaimDue(ctx, models.Dispatch{Queue: q, Limit: limit, InFlight: d.cfg.InFlight})
	if err != nil {
		return false, err
	}
	return len(tasks) == limit, d.send(ctx, tasks)
}

// send enqueues claimed tasks and confirms them. Those that Redis did not take are released at once. No transaction is
// open meanwhile; a crash here costs the claims' short lease.
func (d *Dispatcher) send(ctx context.Context, claimed []models.Task) error {
	if len(claimed) == 0 {
		return nil
	}
	taken := make([]bool, len(claimed))
	group, enqueueCtx := errgroup.WithContext(ctx)
	group.SetLimit(enqueueConcurrency)
	for i, t := range claimed {
		group.Go(func() error {
			// A name that is taken says only that this very dispatch has been here before; if it is not worked on, the
			// lease runs out and the next epoch has a name of its own.
			_, err := d.tasks.EnqueueContext(enqueueCtx, newTask(t))
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				return err
			}
			taken[i] = true
			return nil
		})
	}
	err := errors.Join(group.Wait(), publishWork(ctx, d.redis, claimed))
	return errors.Join(err, d.settle(ctx, claimed, taken))
}

// settle writes down which claims Redis has taken. It outlives a bounded context: a forgotten claim delays its task.
func (d *Dispatcher) settle(ctx context.Context, claimed []models.Task, taken []bool) error {
	var sent, unsent []models.Task
	for i, t := range claimed {
		if taken[i] {
			sent = append(sent, t)
		} else {
			unsent = append(unsent, t)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseAfter)
	defer cancel()
	var err error
	if len(sent) > 0 {
		err = d.store.ConfirmDispatched(ctx, sent)
	}
	if len(unsent) > 0 {
		err = errors.Join(err, d.store.ReleaseTasks(ctx, unsent))
	}
	return err
}
