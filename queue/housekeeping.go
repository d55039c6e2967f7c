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
	// markerKey is in Redis as long as Redis has kept its memory. Whoever finds it missing sends everything again.
	markerKey = "partnerbilling:marker"
	// markerReady is what the marker holds once everything has gone out again.
	markerReady = "ready"
	// asynqQueuesKey is where Asynq keeps the names of the queues. Its clients write it once in their life, so that a
	// flush would hide the queues from the dashboard.
	asynqQueuesKey = "asynq:queues"
	// reclaimLimit is how many lost tasks one round makes due again.
	reclaimLimit = 1000
)

// housekeep starts recurring work, brings back lost tasks and those whose time a move of the clock has brought, and notices
// a Redis that has lost its memory. None depends on another: a failure of one keeps no other.
func (d *Dispatcher) housekeep(ctx context.Context) (bool, error) {
	reclaimed, err := d.store.ReclaimLost(ctx, reclaimLimit)
	if reclaimed > 0 {
		d.cfg.Log.InfoContext(ctx, "tasks whose worker or queue was lost are due again", "tasks", reclaimed)
	}
	early, earlyErr := d.store.ReclaimEarly(ctx, reclaimLimit)
	reclaimed, err = max(reclaimed, early), errors.Join(err, earlyErr)
	for kind, every := range d.cfg.Recurring {
		_, startErr := d.store.StartRecurring(ctx, kind, every)
		err = errors.Join(err, startErr)
	}
	return reclaimed == reclaimLimit, errors.Join(err, d.noticeFlush(ctx))
}

// completeMarker makes a marker ready if it still is the caller's: it is another's or gone if Redis has lost its memory again.
var completeMarker = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return 0`)

// noticeFlush sends everything in flight again if Redis has lost its memory. The marker comes before, and is made ready only
// after that, if it is still there: a crash or another flush in between repeats it.
func (d *Dispatcher) noticeFlush(ctx context.Context) error {
	marker, err := d.redis.Get(ctx, markerKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("queue: look for the marker: %w", err)
	}
	if marker == markerReady {
		return nil
	}
	mine := uuid.NewString()
	if err := d.redis.Set(ctx, markerKey, mine, 0).Err(); err != nil {
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
		level = slog.LevelInfo // a first start, most likely
	}
	d.cfg.Log.Log(ctx, level, "Redis has no memory of us; everything in flight goes out again", "tasks", reclaimed)
	return completeMarker.Run(ctx, d.redis, []string{markerKey}, mine, markerReady).Err()
}
