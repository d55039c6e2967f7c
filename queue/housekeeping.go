package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	// markerKey exists as long as Redis keeps its data. If it is missing, the dispatcher sends
	// every task in flight again.
	markerKey = "partnerbilling:marker"
	// markerReady is the value of the marker once every task is due again.
	markerReady = "ready"
	// asynqQueuesKey holds the names of Asynq's queues. A client writes it once in its life.
	// Without it the dashboard shows no queues.
	asynqQueuesKey = "asynq:queues"
	// reclaimLimit is the maximum number of tasks that one statement reclaims.
	reclaimLimit = 1000
)

// housekeep reclaims lost tasks and retries that a move of the clock made due, starts recurring
// work, and detects a flush of Redis. A failure of one step does not stop the others. It reports
// whether more tasks may be there to reclaim.
func (d *Dispatcher) housekeep(ctx context.Context) (bool, error) {
	reclaimed, err := d.store.ReclaimLost(ctx, reclaimLimit)
	if reclaimed > 0 {
		d.cfg.Log.InfoContext(ctx, "reclaimed tasks with an expired lease", "tasks", reclaimed)
	}
	early, earlyErr := d.store.ReclaimEarly(ctx, reclaimLimit)
	reclaimed, err = max(reclaimed, early), errors.Join(err, earlyErr)
	for kind, every := range d.cfg.Recurring {
		_, startErr := d.store.StartRecurring(ctx, kind, every)
		err = errors.Join(err, startErr)
	}
	return reclaimed == reclaimLimit, errors.Join(err, d.detectFlush(ctx))
}

// completeMarker makes the marker ready if it still holds the caller's value. After another flush
// it is missing or holds the value of another caller.
var completeMarker = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return 0`)

// detectFlush makes every task in flight due again if Redis has lost its data. It sets the marker
// first, and makes it ready last. A crash or another flush in between repeats the whole.
func (d *Dispatcher) detectFlush(ctx context.Context) error {
	marker, err := d.redis.Get(ctx, markerKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("queue: read the marker: %w", err)
	}
	if marker == markerReady {
		return nil
	}
	marker = uuid.NewString()
	if err := d.redis.Set(ctx, markerKey, marker, 0).Err(); err != nil {
		return fmt.Errorf("queue: set the marker: %w", err)
	}
	names := make([]any, 0, len(Names()))
	for _, q := range Names() {
		names = append(names, string(q))
	}
	if err := d.redis.SAdd(ctx, asynqQueuesKey, names...).Err(); err != nil {
		return fmt.Errorf("queue: register the queues: %w", err)
	}
	reclaimed, err := d.store.ReclaimAll(ctx)
	if err != nil {
		return err
	}
	level := slog.LevelWarn
	if reclaimed == 0 {
		level = slog.LevelInfo // most likely a first start
	}
	d.cfg.Log.Log(ctx, level, "Redis has lost its data; all tasks in flight are due again", "tasks", reclaimed)
	return completeMarker.Run(ctx, d.redis, []string{markerKey}, marker, markerReady).Err()
}
