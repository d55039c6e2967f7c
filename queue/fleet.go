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
)

// fleet is how many debit tasks all workers together can run at once, as they tell in Redis.
type fleet struct {
	inspector *asynq.Inspector
	counted   atomic.Int64
}

func newFleet(client *redis.Client) *fleet {
	return &fleet{inspector: asynq.NewInspectorFromRedisClient(client)}
}

// slots is the last count.
func (f *fleet) slots() int { return max(leastSlots, int(f.counted.Load())) }

// count asks Redis. While Redis does not answer, the last count stands.
func (f *fleet) count(context.Context) (bool, error) {
	servers, err := f.inspector.Servers()
	if err != nil {
		return false, fmt.Errorf("queue: count the fleet: %w", err)
	}
	slots := 0
	for _, s := range servers {
		if _, serves := s.Queues[string(models.QueueDebits)]; serves {
			slots += s.Concurrency
		}
	}
	f.counted.Store(int64(slots))
	return false, nil
}
