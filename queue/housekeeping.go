package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

const (
	// markerPrefix and the queue's name, as a hash tag in braces, form the key of the queue's
	// marker. In a Cluster the marker shares the hash slot of the queue's tasks.
	markerPrefix = "partnerbilling:marker:"
	// markerReady begins the value of the marker of a queue whose lost tasks, if any, are due
	// again. The replication id of the server follows.
	markerReady = "ready "
	// asynqQueuesKey holds the names of Asynq's queues. An Asynq client writes each name only once,
	// so the names are missing after a loss. Without them the dashboard shows no queues.
	asynqQueuesKey = "asynq:queues"
	// reclaimLimit is the maximum number of tasks that one search for expired leases or for early
	// retries reclaims.
	reclaimLimit = 1000
	// reclaimAllInterval is the time between two searches of all expired leases.
	reclaimAllInterval = time.Minute
	// reclaimOverlap is how far a search reaches back before the beginning of the last search. It
	// exceeds the drift between the clocks of this process and Postgres. It also exceeds the time
	// for which a statement may lock a task, since a search skips locked tasks.
	reclaimOverlap = 15 * time.Second
	// firstDetection bounds how long a Redis that does not answer delays the first dispatch.
	firstDetection = time.Second
)

// housekeep makes lost tasks due again, and also retries that a move of the sandbox's clock has
// made due early. It starts recurring work, and detects losses of Redis. A failure of one step does
// not stop the others. housekeep returns the pause before the next round: 0 if there may be more
// tasks to reclaim.
func (d *Dispatcher) housekeep(ctx context.Context) (time.Duration, error) {
	reclaimed, err := d.reclaimLost(ctx)
	early, earlyErr := d.store.ReclaimEarly(ctx, reclaimLimit)
	reclaimed, err = max(reclaimed, early), errors.Join(err, earlyErr)
	for kind, every := range d.cfg.Recurring {
		_, startErr := d.store.StartRecurring(ctx, kind, every)
		err = errors.Join(err, startErr)
	}
	err = errors.Join(err, d.detectLoss(ctx))
	if reclaimed == reclaimLimit {
		return 0, err
	}
	return housekeepInterval, err
}

// reclaimLost makes tasks with an expired lease due again and returns their number. It searches the
// leases that expired since its last search, and all leases once in reclaimAllInterval. A search of
// all leases is slow while an old database transaction keeps the dead index entries of finished
// tasks.
func (d *Dispatcher) reclaimLost(ctx context.Context) (int, error) {
	now := d.cfg.Now()
	within := d.reclaims.within(now)
	reclaimed, err := d.store.ReclaimLost(ctx, within, reclaimLimit)
	if err == nil && reclaimed < reclaimLimit {
		d.reclaims.done(now, within)
	}
	if reclaimed > 0 {
		d.cfg.Log.InfoContext(ctx, "reclaimed tasks with an expired lease", "tasks", reclaimed)
	}
	return reclaimed, err
}

// reclaims holds the times at which the last complete searches for expired leases began. The zero
// time means that there was none.
type reclaims struct {
	all  time.Time // of all leases
	last time.Time // of all or of recent leases
}

// within returns how far the next search reaches back; models.AnyTime for a search of all leases.
func (r *reclaims) within(now time.Time) time.Duration {
	if now.Sub(r.all) >= reclaimAllInterval {
		return models.AnyTime
	}
	return now.Sub(r.last) + reclaimOverlap
}

// done records a complete search that began at began and reached back by within.
func (r *reclaims) done(began time.Time, within time.Duration) {
	r.last = began
	if within == models.AnyTime {
		r.all = began
	}
}

// detectLossFirst detects a loss before the first dispatch: tasks that are dispatched before the
// detection are dispatched twice. After a failure, housekeeping tries again.
func (d *Dispatcher) detectLossFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstDetection)
	defer cancel()
	if err := d.detectLoss(ctx); err != nil {
		d.cfg.Log.WarnContext(ctx, "cannot see yet whether Redis has lost tasks", logs.Outage(err), "error", err)
	}
}

// markerKey returns the key of a queue's marker.
func markerKey(q models.Queue) string { return markerPrefix + "{" + string(q) + "}" }

// completeMarker sets the marker KEYS[1] to its ready value ARGV[2] if it still holds the caller's
// value ARGV[1]. After another loss, the marker is missing or holds the value of another caller.
var completeMarker = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return 0`)

// detectLoss makes all tasks in flight of a queue due again if the queue's server may have lost
// some of them. The queues of a Cluster are independent, since they may be on different servers.
func (d *Dispatcher) detectLoss(ctx context.Context) error {
	if _, ok := d.redis.(*redis.ClusterClient); !ok {
		return d.detectLossOf(ctx, models.Queues...)
	}
	var group errgroup.Group
	for _, q := range models.Queues {
		group.Go(func() error { return d.detectLossOf(ctx, q) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return d.registerQueues(ctx) // the names may be on a server without a marker
}

// registerQueues writes the names of all queues to asynqQueuesKey.
func (d *Dispatcher) registerQueues(ctx context.Context) error {
	names := make([]any, 0, len(models.Queues))
	for _, q := range models.Queues {
		names = append(names, string(q))
	}
	if err := d.redis.SAdd(ctx, asynqQueuesKey, names...).Err(); err != nil {
		return fmt.Errorf("queue: register the queues: %w", logs.OfRedis(err))
	}
	return nil
}

// detectLossOf compares the markers of queues that are on one server with the server's replication
// id. If the marker of a queue is missing, the server has lost its data. If the marker holds
// another id, the server was restarted or promoted, and may lack the latest tasks. In both cases
// the queue's tasks are redispatched.
func (d *Dispatcher) detectLossOf(ctx context.Context, queues ...models.Queue) error {
	keys := make([]string, len(queues))
	for i, q := range queues {
		keys[i] = markerKey(q)
	}
	markers, err := d.redis.MGet(ctx, keys...).Result()
	if err != nil {
		return fmt.Errorf("queue: read the markers of %s: %w", queues, logs.OfRedis(err))
	}
	server, err := masterOf(ctx, d.redis, keys[0])
	if err != nil {
		return fmt.Errorf("queue: find the server of %s: %w", queues, logs.OfRedis(err))
	}
	history, err := replicationID(ctx, server)
	if err != nil {
		return fmt.Errorf("queue: read the replication id of %s: %w", queues, logs.OfRedis(err))
	}
	var lost []models.Queue
	for i, q := range queues {
		if markers[i] != markerReady+history {
			lost = append(lost, q)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	if err := checkPolicy(ctx, server); errors.Is(err, errEvicts) {
		d.cfg.Log.ErrorContext(ctx, "the server of the queues is not safe to use", "queues", lost, "error", err)
	}
	var group errgroup.Group
	for i, q := range queues {
		if slices.Contains(lost, q) {
			group.Go(func() error { return d.redispatch(ctx, q, markers[i] == nil, history) })
		}
	}
	return group.Wait()
}

// redispatch makes the tasks in flight of a queue due again. It sets the marker first and makes it
// ready last: after a crash or another loss in between, the next detection redispatches once more.
// isEmpty says that the server has lost its data; history is its replication id.
func (d *Dispatcher) redispatch(ctx context.Context, q models.Queue, isEmpty bool, history string) error {
	key, marker := markerKey(q), uuid.NewString()
	if err := d.redis.Set(ctx, key, marker, 0).Err(); err != nil {
		return fmt.Errorf("queue: set the marker of %s: %w", q, logs.OfRedis(err))
	}
	reclaimed, err := d.store.ReclaimQueue(ctx, q)
	if err != nil {
		return err
	}
	d.logLoss(ctx, q, isEmpty, reclaimed)
	if err := d.registerQueues(ctx); err != nil {
		return err
	}
	return logs.OfRedis(completeMarker.Run(ctx, d.redis, []string{key}, marker, markerReady+history).Err())
}

// logLoss logs a detected loss, as a warning if tasks were in flight.
func (d *Dispatcher) logLoss(ctx context.Context, q models.Queue, isEmpty bool, reclaimed int) {
	if reclaimed == 0 {
		message := "Redis was restarted or failed over; no task was in flight"
		if isEmpty {
			message = "Redis has no data of the queue; no task was in flight" // most likely a first start
		}
		d.cfg.Log.InfoContext(ctx, message, "queue", q)
		return
	}
	message := "Redis was restarted or failed over; all tasks in flight are due again"
	if isEmpty {
		message = "Redis has lost its data; all tasks in flight are due again"
	}
	d.cfg.Log.WarnContext(ctx, message, "queue", q, "tasks", reclaimed)
}

// replicationID returns the id of the server's history of writes, which changes with a restart and
// with the promotion of a replica. It is "" if the server forbids INFO.
func replicationID(ctx context.Context, server redis.Cmdable) (string, error) {
	info, err := server.Info(ctx, "replication").Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return "", nil
	}
	return infoField(info, "master_replid"), err
}
