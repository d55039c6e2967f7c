package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
)

const (
	// countEvery is how often a dispatcher counts the fleet.
	countEvery = 2 * time.Second
	// mostTurns bounds by how much a worker looks less often because there are others: they may have died since they were counted.
	mostTurns = 16
)

// leastSlots are what one worker has by default; a fleet is never taken for smaller.
var leastSlots = map[models.Queue]int{models.QueueDebits: 16, models.QueueWebhooks: 1024}

// fleet is how many workers there are, and how many tasks of a queue all of them together can run at once, as they tell in Redis.
type fleet struct {
	inspector *asynq.Inspector
	counted   map[models.Queue]*atomic.Int64 // slots
	workers   atomic.Int64
}

func newFleet(client *redis.Client) *fleet {
	f := &fleet{inspector: asynq.NewInspectorFromRedisClient(client), counted: map[models.Queue]*atomic.Int64{}}
	for q := range leastSlots {
		f.counted[q] = new(atomic.Int64)
	}
	return f
}

// slots is the last count.
func (f *fleet) slots(q models.Queue) int { return max(leastSlots[q], int(f.counted[q].Load())) }

// each is how often each worker does what all of them together do so often.
func (f *fleet) each(together time.Duration) time.Duration {
	return together * time.Duration(min(max(f.workers.Load(), 1), mostTurns))
}

// count asks Redis. While Redis does not answer, the last count stands.
func (f *fleet) count(context.Context) (bool, error) {
	servers, err := f.inspector.Servers()
	if err != nil {
		return false, fmt.Errorf("queue: count the fleet: %w", err)
	}
	slots := map[models.Queue]int{}
	workers := 0
	for _, s := range servers {
		for q := range s.Queues {
			slots[models.Queue(q)] += s.Concurrency
		}
		if _, serves := s.Queues[string(models.QueueDebits)]; serves {
			workers++
		}
	}
	for q, counted := range f.counted {
		counted.Store(int64(slots[q]))
	}
	f.workers.Store(int64(workers))
	return false, nil
}
