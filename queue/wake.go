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
)

// Asynq looks for tasks at fixed intervals: short ones cost Redis thousands of commands a second while there is nothing to
// do, long ones make somebody wait. So whoever enqueues publishes a word, and a server that finds its queue empty rests
// until it hears one. A word that is lost costs restAtMost.
const (
	// restAtMost is how long a server rests without a word: retries and restarts make tasks ready without one.
	restAtMost = 300 * time.Millisecond
	// afterRest is Asynq's own pause after each look.
	afterRest = time.Millisecond
	// wakePrefix and a queue's name are the channel of its words.
	wakePrefix = "partnerbilling:wake:"
)

// publishWork tells the servers of the tasks' queues that there is something to do.
func publishWork(ctx context.Context, client *redis.Client, tasks []models.Task) error {
	var told []models.Queue
	for _, t := range tasks {
		q := t.Kind.Queue()
		if !rests(q) || slices.Contains(told, q) {
			continue
		}
		told = append(told, q)
		if err := client.Publish(ctx, wakePrefix+string(q), "").Err(); err != nil {
			return err
		}
	}
	return nil
}

// rests says whether the queue has a server of its own, which rests while the queue is empty.
func rests(q models.Queue) bool { return q == models.QueueCheckout || q == models.QueueWebhooks }

// rester lets servers rest. It sees every command of the client that they share.
type rester struct {
	words map[string]chan struct{} // by the key that a look reads; a word that nobody has heard yet waits in it
	stop  chan struct{}
	once  sync.Once

	atMost time.Duration
	failed prometheus.Counter
}

func newRester(queues []models.Queue) *rester {
	r := &rester{words: map[string]chan struct{}{}, stop: make(chan struct{}), atMost: restAtMost}
	r.failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "svc_queue_redis_errors_total", Help: "Redis commands with which the worker fetches and ends tasks that failed.",
	})
	for _, q := range queues {
		if rests(q) {
			r.words[pendingKey(string(q))] = make(chan struct{}, 1)
		}
	}
	return r
}

// pendingKey is where Asynq keeps a queue's tasks that wait.
func pendingKey(queue string) string { return "asynq:{" + queue + "}" + pendingSuffix }

const pendingSuffix = ":pending"

// listen hears words until the context ends.
func (r *rester) listen(ctx context.Context, client *redis.Client, queues []models.Queue) {
	var channels []string
	for _, q := range queues {
		if rests(q) {
			channels = append(channels, wakePrefix+string(q))
		}
	}
	if len(channels) == 0 {
		return
	}
	subscription := client.Subscribe(ctx, channels...)
	defer func() { _ = subscription.Close() }()
	for words := subscription.Channel(); ; {
		select {
		case <-ctx.Done():
			return
		case word, ok := <-words:
			if !ok {
				return
			}
			r.hear(strings.TrimPrefix(word.Channel, wakePrefix))
		}
	}
}

func (r *rester) hear(queue string) {
	select {
	case r.words[pendingKey(queue)] <- struct{}{}:
	default: // one is enough
	}
}

// end lets nobody rest any more.
func (r *rester) end() { r.once.Do(func() { close(r.stop) }) }

// DialHook implements redis.Hook.
func (r *rester) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (r *rester) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook rests after a look that has found nothing, and after one that failed: Asynq would look again at once, thousands of
// times a second while Redis refuses it, for being full. It holds no connection meanwhile.
func (r *rester) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if words := r.words[lookedAt(cmd)]; words != nil && errors.Is(err, redis.Nil) {
			r.rest(words)
		}
		if isFault(err) {
			r.failed.Inc()
			if strings.HasSuffix(lookedAt(cmd), pendingSuffix) {
				r.rest(nil)
			}
		}
		return err
	}
}

// isFault leaves out what is as it may be: nothing there, a script that Redis sees for the first time, a shutdown.
func isFault(err error) bool {
	return err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "NOSCRIPT") && !errors.Is(err, context.Canceled)
}

func (r *rester) rest(words <-chan struct{}) {
	timer := time.NewTimer(r.atMost)
	defer timer.Stop()
	select {
	case <-words:
	case <-r.stop:
	case <-timer.C:
	}
}

// lookedAt is the first key of a script's call, "" of any other command. Of Asynq's scripts only the look has a queue's
// pending tasks there.
func lookedAt(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 4 || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return ""
	}
	key, _ := args[3].(string)
	return key
}
