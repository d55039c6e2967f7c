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
	// pollEvery is how often the loops of all workers together look for due tasks while they find none, and busyEvery while they
	// do: what workers have finished is made up for before they run dry.
	pollEvery = 100 * time.Millisecond
	busyEvery = 10 * time.Millisecond
	// webhooksEvery is busyEvery of webhooks: there are more, so that looking costs more, and more are on their way, so that workers
	// do not run dry meanwhile.
	webhooksEvery = 50 * time.Millisecond
	// busyRounds is how many rounds after it found some the loop takes it that more may be let through any moment.
	busyRounds = 100
	// pauseAfter is how long the loop waits after Postgres or Redis failed it.
	pauseAfter = time.Second
	// housekeepEvery is how often lost tasks, a flushed Redis and recurring work are looked for.
	housekeepEvery = 500 * time.Millisecond
	// claimLimit is the most tasks that one claim takes, and webhooksLimit of webhooks: those are small and many, and a
	// claim's cost grows with the organisations that have some.
	claimLimit    = 100
	webhooksLimit = 2000
	// freshEvery is the least time between two claims of what has been notified: at a steady rate many fewer statements, for a little of
	// how soon a task starts.
	freshEvery = 3 * time.Millisecond
	// roomEvery is how often webhooks in flight are counted while there are new ones.
	roomEvery = 100 * time.Millisecond
	// inlineSenders is how many inline dispatches are with Redis at once, and inlineMost the most tasks of one. One claim is under way
	// at a time, of what has been notified during the one before: the more there is, the less each costs.
	inlineSenders = 4
	inlineMost    = 256
	// enqueueConcurrency is how many enqueues are under way at once: each is a round trip to Redis.
	enqueueConcurrency = 8
)

// Dispatcher sends due tasks from the outbox to Redis. The API uses its inline half, the workers' both.
type Dispatcher struct {
	store *models.Store
	redis *redis.Client
	tasks *asynq.Client
	cfg   DispatcherConfig
	fresh chan []models.TaskID // to be claimed
	sent  chan []models.Task   // claimed already
	fleet *fleet

	unconfirmed unconfirmed

	// What claim, and so claimFresh alone, knows of webhooks: how many more may go out, until it is stale.
	room  int
	stale <-chan time.Time
}

// DispatcherConfig tunes a Dispatcher.
type DispatcherConfig struct {
	// InFlight is the most tasks of one queue that one organisation may have in Redis or in work, so that a large
	// backlog of one never stands in the way of another. Default: of debits half as many again as the fleet can work on
	// at once, else 16.
	InFlight int
	// Recurring is the work that starts by itself, and how often.
	Recurring map[models.TaskKind]time.Duration
	Log       *slog.Logger
}

// NewDispatcher makes a dispatcher; nothing runs until RunInline or Run.
func NewDispatcher(store *models.Store, client *redis.Client, cfg DispatcherConfig) *Dispatcher {
	return &Dispatcher{
		store: store, redis: client, tasks: asynq.NewClientFromRedisClient(client), cfg: cfg,
		fresh: make(chan []models.TaskID, inlineQueue), sent: make(chan []models.Task, inlineQueue), fleet: newFleet(client),
	}
}

// Notify tells the dispatcher of tasks whose transaction has just been committed. It never waits; what does not fit is found by
// the workers' loop.
func (d *Dispatcher) Notify(tasks []models.TaskID) {
	if len(tasks) == 0 {
		return
	}
	select {
	case d.fresh <- tasks:
	default:
	}
}

// Room is how many debit tasks may be claimed by the transaction that writes them, for Send.
func (d *Dispatcher) Room() models.Dispatch { return d.bounds(models.QueueDebits) }

// Send dispatches tasks that have been claimed by the transaction that wrote them, right after its commit. It never waits; what
// does not fit is found by the workers' loop once the claim's lease is over.
func (d *Dispatcher) Send(claimed []models.Task) {
	if len(claimed) == 0 {
		return
	}
	select {
	case d.sent <- claimed:
	default:
	}
}

// RunInline dispatches what Notify and Send tell of, until the context ends.
func (d *Dispatcher) RunInline(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return d.repeat(ctx, countEvery, d.fleet.count) })
	group.Go(func() error { return d.repeat(ctx, confirmEvery, d.confirm) })
	group.Go(func() error { return d.claimFresh(ctx) })
	for range inlineSenders {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case claimed := <-d.sent:
					d.inlineFailed(ctx, d.sendInline(ctx, claimed))
				}
			}
		})
	}
	defer d.confirmRest(ctx)
	err := group.Wait()
	d.releaseRest(ctx)
	return err
}

// releaseRest releases what has been claimed and not been sent. Should Postgres not take it, it goes out when its claims are over.
func (d *Dispatcher) releaseRest(ctx context.Context) {
	var rest []models.Task
	for {
		select {
		case claimed := <-d.sent:
			rest = append(rest, claimed...)
			continue
		default:
		}
		break
	}
	if err := d.release(ctx, rest); err != nil {
		d.cfg.Log.WarnContext(ctx, "what was claimed for dispatch could not be released", "tasks", len(rest), "error", err)
	}
}

// withThoseWaiting adds what has been notified meanwhile.
func (d *Dispatcher) withThoseWaiting(tasks []models.TaskID) []models.TaskID {
	for len(tasks) < inlineMost {
		select {
		case more := <-d.fresh:
			tasks = append(tasks[:len(tasks):len(tasks)], more...)
		default:
			return tasks
		}
	}
	return tasks
}

// claimFresh claims what Notify tells of, and has it sent, until the context ends.
func (d *Dispatcher) claimFresh(ctx context.Context) error {
	pace := time.NewTicker(freshEvery) // holds a tick while there was nothing to claim
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case tasks := <-d.fresh:
			select {
			case <-ctx.Done():
				return nil
			case <-pace.C:
			}
			claimed, err := d.claim(ctx, d.withThoseWaiting(tasks))
			d.inlineFailed(ctx, err)
			if len(claimed) == 0 {
				continue
			}
			select {
			case <-ctx.Done():
				d.Send(claimed) // to be released with the rest
			case d.sent <- claimed:
			}
		}
	}
}

func (d *Dispatcher) claim(ctx context.Context, ids []models.TaskID) ([]models.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, pauseAfter)
	defer cancel()
	others := d.bounds(models.QueueWebhooks)
	if d.isStale() {
		n, err := d.store.InFlight(ctx, models.QueueWebhooks)
		if err != nil {
			return nil, err
		}
		d.stale = time.After(roomEvery)
		d.room = others.Total - others.Worth - n // the rest is for those that wait: else they would as long as there are always new ones
	}
	others.Limit = max(0, d.room)
	claimed, err := d.store.ClaimTasks(ctx, ids, d.bounds(models.QueueDebits), others)
	for _, t := range claimed {
		if t.Kind.Queue() == models.QueueWebhooks {
			d.room--
		}
	}
	return claimed, err
}

// isStale says whether webhooks in flight have to be counted.
func (d *Dispatcher) isStale() bool {
	if d.stale == nil {
		return true
	}
	select {
	case <-d.stale:
		d.stale = nil // until they have been
		return true
	default:
		return false
	}
}

func (d *Dispatcher) sendInline(ctx context.Context, claimed []models.Task) error {
	ctx, cancel := context.WithTimeout(ctx, inlineWithin)
	defer cancel()
	return d.send(ctx, claimed)
}

// inlineFailed logs an error, if it is one.
func (d *Dispatcher) inlineFailed(ctx context.Context, err error) {
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
		group.Go(func() error { return d.runQueue(ctx, q) })
	}
	defer d.confirmRest(ctx)
	return group.Wait()
}

// runQueue dispatches what is due on one queue, until the context ends.
func (d *Dispatcher) runQueue(ctx context.Context, q models.Queue) error {
	idle := busyRounds
	return d.pace(ctx, func(ctx context.Context) (time.Duration, error) {
		bounds := d.bounds(q)
		n, err := d.dispatchDue(ctx, bounds)
		if n > 0 {
			idle = 0
		} else {
			idle = min(idle+1, busyRounds)
		}
		switch {
		case n == bounds.Limit:
			return 0, err
		case idle < busyRounds && q == models.QueueWebhooks:
			return d.fleet.each(webhooksEvery), err
		case idle < busyRounds:
			return d.fleet.each(busyEvery), err
		default:
			return d.fleet.each(pollEvery), err
		}
	})
}

// repeat calls do, again at once while it reports more, else after the pause.
func (d *Dispatcher) repeat(ctx context.Context, pause time.Duration, do func(context.Context) (bool, error)) error {
	return d.pace(ctx, func(ctx context.Context) (time.Duration, error) {
		more, err := do(ctx)
		if more {
			return 0, err
		}
		return pause, err
	})
}

// pace calls do until the context ends, each time after the pause that the call before has asked for.
func (d *Dispatcher) pace(ctx context.Context, do func(context.Context) (time.Duration, error)) error {
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
			d.cfg.Log.WarnContext(ctx, "dispatch failed", "error", err)
			pause = pauseAfter
		}
		timer.Reset(pause)
	}
}

// bounds are how much of a queue may be on its way. Debits have a total, since what is in Redis before a newcomer's task is run
// before it: as much as keeps every slot busy until the next round, and no more. Whatever one organisation has waiting, there is
// room for another one's.
func (d *Dispatcher) bounds(q models.Queue) models.Dispatch {
	b := models.Dispatch{Queue: q, Limit: claimLimit, InFlight: 16}
	switch q {
	case models.QueueDebits:
		slots := d.fleet.slots(q)
		b.InFlight, b.Total = slots*3/2, slots*5/2
	case models.QueueWebhooks:
		b.Limit, b.Total, b.Worth = webhooksLimit, 4*d.fleet.slots(q), webhooksLimit*3/4
	case models.QueueCheckout, models.QueueSweeps: // never many at a time
	}
	if d.cfg.InFlight > 0 {
		b.InFlight = d.cfg.InFlight
	}
	if b.Total > 0 {
		b.Total = max(b.Total, b.InFlight)
	}
	return b
}

func (d *Dispatcher) dispatchDue(ctx context.Context, bounds models.Dispatch) (int, error) {
	tasks, err := d.store.ClaimDue(ctx, bounds)
	if err != nil {
		return 0, err
	}
	return len(tasks), d.send(ctx, tasks)
}

// send enqueues claimed tasks; they are confirmed a while later. Those that Redis did not take are released at once. No transaction is
// open meanwhile; a crash here costs the claims' short lease.
func (d *Dispatcher) send(ctx context.Context, claimed []models.Task) error {
	if len(claimed) == 0 {
		return nil
	}
	parcels := pack(claimed)
	taken := make([]bool, len(parcels))
	group, enqueueCtx := errgroup.WithContext(ctx)
	group.SetLimit(enqueueConcurrency)
	for i, parcel := range parcels {
		group.Go(func() error {
			// A name that is taken says only that this very dispatch has been here before; if it is not worked on, the
			// lease runs out and the next epoch has a name of its own.
			_, err := d.tasks.EnqueueContext(enqueueCtx, newParcel(parcel))
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				return err
			}
			taken[i] = true
			return nil
		})
	}
	err := errors.Join(group.Wait(), publishWork(ctx, d.redis, claimed))
	return errors.Join(err, d.settle(ctx, parcels, taken))
}

// settle keeps in mind which claims Redis has taken, and releases the others: a forgotten claim delays its task.
func (d *Dispatcher) settle(ctx context.Context, parcels [][]models.Task, taken []bool) error {
	var unsent []models.Task
	for i, parcel := range parcels {
		if taken[i] {
			d.unconfirmed.add(parcel)
		} else {
			unsent = append(unsent, parcel...)
		}
	}
	return d.release(ctx, unsent)
}

// release makes claimed tasks that Redis does not get due again. It outlives the context.
func (d *Dispatcher) release(ctx context.Context, unsent []models.Task) error {
	if len(unsent) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseAfter)
	defer cancel()
	return d.store.ReleaseTasks(ctx, unsent)
}
