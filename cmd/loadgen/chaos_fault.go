package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"partnerbilling/deploy/local"
	"partnerbilling/deploy/wire"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
)

// inject injects a fault of a chaos run, and ends it when its time is over. If ctx ends first,
// inject ends the fault at once, unless it is a fault of the rail.
func (c *chaosFleet) inject(ctx context.Context, f fault) error {
	switch f.Kind {
	case killWorker, killAPI, killRail:
		return c.members[f.Target].kill(ctx, f.For)
	case pauseWorker, pauseWorkerLong, pauseAPI, pauseRail:
		return c.members[f.Target].pause(ctx, f.For)
	case flushRedis:
		return retryUntilDone(ctx, func(ctx context.Context) error { return c.redis.FlushAll(ctx).Err() })
	case restartRedis:
		return c.restart(ctx, c.cache.Redis, f.For)
	case restartPostgres:
		return c.restart(ctx, c.database.Postgres, f.For)
	case cutWire:
		return c.breakWire(ctx, f, wire.Fault{Refuse: true})
	case tearWire:
		return c.breakWire(ctx, f, wire.Fault{Limit: f.Amount})
	case hangWire:
		return c.breakWire(ctx, f, wire.Fault{Swallow: true})
	case slowWire:
		delay := time.Duration(f.Amount) * time.Millisecond
		return c.breakWire(ctx, f, wire.Fault{Delay: delay, Jitter: delay / 2})
	case freezeWire:
		return c.breakWire(ctx, f, wire.Fault{Freeze: true})
	case freezeOpen:
		return c.breakWire(ctx, f, wire.Fault{FreezeOpen: true})
	case loseAnswers:
		p := rail.Fault{Probability: float64(f.Amount) / 100}
		return c.railFaults.apply(ctx, f, rail.Faults{LoseAnswer: p})
	case bankUnavailable:
		p := rail.Fault{Probability: float64(f.Amount) / 100}
		return c.railFaults.apply(ctx, f, rail.Faults{
			Unavailable: p, LoseRequest: rail.Fault{Probability: p.Probability / 4},
		})
	case duplicateTasks:
		return retryUntilDone(ctx, func(ctx context.Context) error { return c.duplicate(ctx, f) })
	case dueAgain:
		return retryUntilDone(ctx, func(ctx context.Context) error { return c.makeDueAgain(ctx, f) })
	case stepClock:
		return retryUntilDone(ctx, func(ctx context.Context) error {
			_, err := c.store.AdvanceClock(ctx, time.Duration(f.Amount)*time.Millisecond)
			return err
		})
	default:
		return fmt.Errorf("fault %s cannot be injected", f.Kind)
	}
}

// retryWithin bounds retryUntilDone. It exceeds the time for which other faults make do fail.
const retryWithin = 2 * time.Minute

// retryUntilDone calls do until do succeeds, ctx ends, or retryWithin has passed. At first, do may
// fail because of other faults. The error is that of the last call, which retryWithin does not
// interrupt.
func retryUntilDone(ctx context.Context, do func(context.Context) error) error {
	retrying, stop := context.WithTimeout(ctx, retryWithin)
	defer stop()
	for {
		attemptCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := do(attemptCtx)
		cancel()
		if err == nil || !sleep(retrying, 50*time.Millisecond) {
			return err
		}
	}
}

// restart stops a server hard, and starts it again after the time down. It starts the server even
// if ctx ends meanwhile.
func (c *chaosFleet) restart(ctx context.Context, server *local.Server, down time.Duration) error {
	if err := server.Stop(ctx, local.Immediate); err != nil {
		return err
	}
	sleep(ctx, down)
	return server.Start(context.WithoutCancel(ctx))
}

// breakWire disturbs the wires of the fault's target with the defect, for the fault's time.
func (c *chaosFleet) breakWire(ctx context.Context, f fault, defect wire.Fault) error {
	if err := c.wires.each(f.Target, func(w *wire.Wire) error { return w.Begin(f.Number, defect) }); err != nil {
		return err
	}
	sleep(ctx, f.For)
	return c.wires.each(f.Target, func(w *wire.Wire) error { return w.End(f.Number) })
}

// errNothingInFlight reports that a fault would have no effect now, since no task is in flight.
// inject tries again for retryWithin. After the partners' last rows no task comes.
var errNothingInFlight = errors.New("no task is in flight")

// duplicate enqueues up to f.Amount tasks in flight twice more, under ids in Redis other than those
// of their dispatches. It also enqueues the tasks of the previous duplicate fault, which may be
// finished.
func (c *chaosFleet) duplicate(ctx context.Context, f fault) error {
	tasks, err := c.inFlight(ctx, f.Amount)
	if err != nil {
		return err
	}
	c.mu.Lock()
	old := c.duplicated
	c.duplicated = tasks
	c.mu.Unlock()
	client := asynq.NewClientFromRedisClient(c.redis)
	for i, id := range slices.Concat(tasks, tasks, old) {
		_, err := client.EnqueueContext(ctx, asynq.NewTask(string(models.TaskDebitRows), []byte(id)),
			asynq.Queue(string(models.QueueDebits)),
			asynq.TaskID(fmt.Sprintf("%s:%s:chaos%d.%d", models.TaskDebitRows, id, f.Number, i)),
			asynq.MaxRetry(0), asynq.Timeout(time.Minute))
		if err != nil {
			return err
		}
	}
	return nil
}

// inFlight returns the ids of up to limit debit tasks in flight.
func (c *chaosFleet) inFlight(ctx context.Context, limit int64) ([]string, error) {
	var tasks []models.TaskID
	err := c.store.DB().NewRaw(`SELECT id FROM outbox WHERE kind = ? AND dispatched_at IS NOT NULL LIMIT ?`,
		models.TaskDebitRows, limit).Scan(ctx, &tasks)
	if err == nil && len(tasks) == 0 {
		err = errNothingInFlight
	}
	texts := make([]string, len(tasks))
	for i, id := range tasks {
		texts[i] = id.String()
	}
	return texts, err
}

// makeDueAgain makes up to f.Amount tasks in flight due again.
func (c *chaosFleet) makeDueAgain(ctx context.Context, f fault) error {
	result, err := c.store.DB().NewRaw(`
UPDATE outbox SET dispatched_at = NULL, redispatch_after = NULL, available_at = least(available_at, svc_now())
WHERE id IN (SELECT id FROM outbox WHERE kind = ? AND dispatched_at IS NOT NULL LIMIT ?)`,
		models.TaskDebitRows, f.Amount).Exec(ctx)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return errNothingInFlight
}

// railFaults sets faults in the process of the rail, over HTTP. Faults may overlap. A rail that
// restarts has none.
type railFaults struct {
	url string
	key rail.SigningKey

	mu     sync.Mutex
	active map[int]rail.Faults // by the number of the fault
}

// apply sets the faults of f in the rail, and removes them when the time of f is over. If the rail
// restarts meanwhile, it has no faults until another fault of the rail begins or ends: that sets
// all active ones again. If ctx ends first, apply returns an error, and the rail keeps the faults.
func (k *railFaults) apply(ctx context.Context, f fault, faults rail.Faults) error {
	if err := retryUntilDone(ctx, func(ctx context.Context) error {
		return k.change(ctx, func() { k.active[f.Number] = faults })
	}); err != nil {
		return err
	}
	sleep(ctx, f.For)
	return retryUntilDone(ctx, func(ctx context.Context) error {
		return k.change(ctx, func() { delete(k.active, f.Number) })
	})
}

// change changes the active faults with do, and then sets their combination in the rail.
func (k *railFaults) change(ctx context.Context, do func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
	sum := rail.Faults{Seed: rand.Uint64()} // not a secret
	for _, number := range slices.Sorted(maps.Keys(k.active)) {
		f := k.active[number]
		sum.LoseAnswer = moreLikely(sum.LoseAnswer, f.LoseAnswer)
		sum.Unavailable = moreLikely(sum.Unavailable, f.Unavailable)
		sum.LoseRequest = moreLikely(sum.LoseRequest, f.LoseRequest)
	}
	return k.put(ctx, sum)
}

// moreLikely returns the fault with the higher probability.
func moreLikely(a, b rail.Fault) rail.Fault {
	return rail.Fault{Probability: max(a.Probability, b.Probability)}
}

// put replaces the faults of the rail.
func (k *railFaults) put(ctx context.Context, faults rail.Faults) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	body, err := json.Marshal(faults)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, k.url+"/faults", bytes.NewReader(body))
	if err != nil {
		return err
	}
	k.key.Sign(req, body, time.Now())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the rail rejects the faults: %s", resp.Status)
	}
	return nil
}
