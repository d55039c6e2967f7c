package queue

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

const (
	// fleetCountInterval is the time between two counts of the fleet.
	fleetCountInterval = 2 * time.Second
	// maxPollStretch bounds the factor by which perWorker stretches an interval. The remaining
	// workers then still poll often enough if many of the counted workers have died.
	maxPollStretch = 16
)

// defaultSlots holds the default number of slots of one worker for each queue. Sweeps share the
// slots of debits. There are many slots for debits: runs in slots share the permits for rail calls
// fairly between organisations. Tasks without a slot wait in the order in which they were enqueued.
var defaultSlots = map[models.Queue]int{
	models.QueueDebits: 32, models.QueueCheckout: 64, models.QueueWebhooks: 1024,
}

// DefaultSlots returns the default slots of one worker for a queue. It returns 0 for sweeps, which
// share the slots of debits.
func DefaultSlots(q models.Queue) int { return defaultSlots[q] }

// fleet counts the running workers, and their slots for each queue, as their Asynq servers report
// them in Redis. It is safe for concurrent use.
type fleet struct {
	inspector  *asynq.Inspector
	slotCounts map[models.Queue]*atomic.Int64
	workers    atomic.Int64
	counted    atomic.Bool // whether a count has succeeded
}

func newFleet(client redis.UniversalClient) *fleet {
	f := &fleet{inspector: asynq.NewInspectorFromRedisClient(client), slotCounts: map[models.Queue]*atomic.Int64{}}
	for _, q := range models.Queues {
		f.slotCounts[q] = new(atomic.Int64)
	}
	return f
}

// slots returns the number of tasks of the queue that the fleet can run at once, as last counted.
// Without a count, or without workers, it returns the default slots of one worker.
func (f *fleet) slots(q models.Queue) int {
	return cmp.Or(int(f.slotCounts[q].Load()), defaultSlots[q])
}

// isAbsent reports whether the last count found no worker of the queue. It is false before the
// first count.
func (f *fleet) isAbsent(q models.Queue) bool { return f.counted.Load() && f.slotCounts[q].Load() == 0 }

// perWorker converts the interval between the polls of all workers together into the interval
// between the polls of one worker.
func (f *fleet) perWorker(shared time.Duration) time.Duration {
	return shared * time.Duration(min(max(f.workers.Load(), 1), maxPollStretch))
}

// count asks Redis for the running workers. If Redis does not answer, the last count stays valid.
// Asynq's inspector takes no context: once ctx ends, count returns without waiting for the
// inspector, whose commands have time-outs of their own.
func (f *fleet) count(ctx context.Context) error {
	counted := make(chan error, 1)
	go func() {
		servers, err := f.inspector.Servers()
		if err == nil {
			f.record(servers)
		}
		counted <- logs.OfRedis(err)
	}()
	select {
	case err := <-counted:
		if err != nil {
			return fmt.Errorf("queue: count the fleet: %w", err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record counts workers and slots from the running Asynq servers. A worker is a process with one or
// more servers, of which at most one serves a queue. Containers may report the same host and PID.
// The number of workers is therefore the number of distinct processes, or of the servers of any one
// queue if that is greater.
func (f *fleet) record(servers []*asynq.ServerInfo) {
	processes, serving, slots := map[string]bool{}, map[string]int{}, map[string]int{}
	workers := 0
	for _, s := range servers {
		processes[fmt.Sprintf("%s:%d", s.Host, s.PID)] = true
		for q := range s.Queues {
			serving[q]++
			slots[q] += s.Concurrency
			workers = max(workers, serving[q])
		}
	}
	for q, n := range f.slotCounts {
		n.Store(int64(slots[string(q)]))
	}
	f.workers.Store(int64(max(workers, len(processes))))
	f.counted.Store(true)
}
