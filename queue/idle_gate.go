package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// Asynq polls its queues at a fixed interval. A short interval costs Redis thousands of commands a
// second while the queues are empty; a long interval delays tasks. Therefore an Asynq server that
// finds a queue empty waits at an idle gate. The dispatcher publishes a wake-up after each enqueue,
// which ends the wait. A lost wake-up delays a task by maxIdle at most.
const (
	// maxIdle is the maximum wait at the idle gate. It must be short, because retries and restarts
	// make tasks ready without a wake-up.
	maxIdle = 300 * time.Millisecond
	// gatedPoll is Asynq's own pause between two polls of a gated queue.
	gatedPoll = time.Millisecond
	// wakePrefix and the queue's name form the name of the Redis channel for the queue's wake-ups.
	wakePrefix = "partnerbilling:wake:"
)

// publishWakeUps publishes a wake-up for each gated queue of the tasks. It publishes on the Redis
// server that holds the queue, so that a wake-up does not depend on the other servers of a Cluster.
func publishWakeUps(ctx context.Context, client redis.UniversalClient, tasks []models.Task) error {
	var published []models.Queue
	for _, t := range tasks {
		q := t.Kind.Queue()
		if !isGated(q) || slices.Contains(published, q) {
			continue
		}
		published = append(published, q)
		server, err := masterOf(ctx, client, pendingKey(string(q)))
		if err != nil {
			return logs.OfRedis(err)
		}
		if err := server.Publish(ctx, wakePrefix+string(q), "").Err(); err != nil {
			return logs.OfRedis(err)
		}
	}
	return nil
}

// isGated reports whether an Asynq server waits at the idle gate while the queue is empty. Only
// sweeps have no gate: they come at intervals, and can wait for the next poll.
func isGated(q models.Queue) bool { return q != models.QueueSweeps }

// idleGate delays the polls of Asynq servers while their queues are empty. It is a hook of the
// Redis client that these servers share, and sees each of their commands. It is safe for concurrent
// use.
type idleGate struct {
	wakeUps map[string]chan struct{} // by pending key; each holds at most one unused wake-up
	opened  chan struct{}            // closed by open
	once    sync.Once

	maxIdle time.Duration
	faults  prometheus.Counter // of failed commands
}

// newIdleGate returns the gate for the gated ones of the queues.
func newIdleGate(queues []models.Queue) *idleGate {
	g := &idleGate{wakeUps: map[string]chan struct{}{}, opened: make(chan struct{}), maxIdle: maxIdle}
	g.faults = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "svc_queue_redis_errors_total",
		Help: "Redis commands that failed while the worker fetched or finished tasks.",
	})
	for _, q := range queues {
		if isGated(q) {
			g.wakeUps[pendingKey(string(q))] = make(chan struct{}, 1)
		}
	}
	return g
}

// pendingKey returns the Redis key under which Asynq keeps the pending tasks of a queue.
func pendingKey(queue string) string { return "asynq:{" + queue + "}" + pendingSuffix }

const pendingSuffix = ":pending"

// listen passes the wake-ups of the queues on to the gate, until the context ends.
func (g *idleGate) listen(ctx context.Context, client redis.UniversalClient, queues []models.Queue) {
	var channels []string
	for _, q := range queues {
		if isGated(q) {
			channels = append(channels, wakePrefix+string(q))
		}
	}
	if len(channels) == 0 {
		return
	}
	subscription := client.Subscribe(ctx, channels...)
	defer func() { _ = subscription.Close() }()
	for messages := subscription.Channel(); ; {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			if !ok {
				return
			}
			g.wake(strings.TrimPrefix(message.Channel, wakePrefix))
		}
	}
}

// wake ends the wait of the queue's Asynq server. If that server does not wait, its next wait ends
// at once.
func (g *idleGate) wake(queue string) {
	select {
	case g.wakeUps[pendingKey(queue)] <- struct{}{}:
	default: // an unused wake-up is there already
	}
}

// open ends all waits, and lets all later polls pass. A second call does nothing.
func (g *idleGate) open() { g.once.Do(func() { close(g.opened) }) }

// DialHook implements redis.Hook.
func (g *idleGate) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (g *idleGate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook. It waits after a poll that found a gated queue empty. It also
// waits after a poll that failed: while Redis refuses commands, Asynq would poll thousands of times
// a second. The wait holds no connection.
func (g *idleGate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if wakeUps := g.wakeUps[firstKey(cmd)]; wakeUps != nil && errors.Is(err, redis.Nil) {
			g.wait(wakeUps)
		}
		if isFault(err) {
			g.faults.Inc()
			if strings.HasSuffix(firstKey(cmd), pendingSuffix) {
				g.wait(nil)
			}
		}
		return err
	}
}

// isFault ignores the expected errors: an empty queue, a script that Redis has not loaded yet, and
// a shutdown.
func isFault(err error) bool {
	return err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "NOSCRIPT") &&
		!errors.Is(err, context.Canceled)
}

// wait waits for a wake-up, for maxIdle at most, or until open.
func (g *idleGate) wait(wakeUps <-chan struct{}) {
	timer := time.NewTimer(g.maxIdle)
	defer timer.Stop()
	select {
	case <-wakeUps:
	case <-g.opened:
	case <-timer.C:
	}
}

// firstKey returns the first key of a call of a script, and "" for any other command. The only
// script of Asynq whose first key is a pending key is the poll.
func firstKey(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 4 || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return ""
	}
	key, _ := args[3].(string)
	return key
}
