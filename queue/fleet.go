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
	// leastSlots are what one worker has by default; a fleet is never taken for smaller.
	leastSlots = 16
	// mostTurns bounds by how much a worker looks less often because there are others: they may have died since they were counted.
	mostTurns = 16
)

// fleet is how many workers there are, and how many debit tasks all of them together can run at once, as they tell in Redis.
type fleet struct {
	inspector *asynq.Inspector
	counted   atomic.Int64
	workers   atomic.Int64
}

func newFleet(client *redis.Client) *fleet {
	return &fleet{inspector: asynq.NewInspectorFromRedisClient(client)}
}

// slots is the last count.
func (f *fleet) slots() int { return max(leastSlots, int(f.counted.Load())) }

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
	slots, workers := 0, 0
	for _, s := range servers {
		if _, serves := s.Queues[string(models.QueueDebits)]; serves {
			slots += s.Concurrency
			workers++
		}
	}
	f.counted.Store(int64(slots))
	f.workers.Store(int64(workers))
	return false, nil
}
