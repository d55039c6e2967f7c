package queue

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"partnerbilling/deploy/local/localtest"
	"partnerbilling/models"
)

// The fleet counts its workers, whatever queues they serve, and the slots of every queue.
func TestFleetCountsWorkersAndSlots(t *testing.T) {
	t.Parallel()
	server := func(host string, pid, slots int, queues ...models.Queue) *asynq.ServerInfo {
		s := &asynq.ServerInfo{Host: host, PID: pid, Concurrency: slots, Queues: map[string]int{}}
		for _, q := range queues {
			s.Queues[string(q)] = 1
		}
		return s
	}
	for name, tt := range map[string]struct {
		servers []*asynq.ServerInfo
		workers time.Duration
		slots   map[models.Queue]int // served queues
	}{
		"no worker": {nil, 1, nil},
		"one worker of all queues": {
			[]*asynq.ServerInfo{
				server("a", 7, 20, models.QueueDebits, models.QueueSweeps), server("a", 7, 70, models.QueueCheckout),
				server("a", 7, 1500, models.QueueWebhooks),
			}, 1,
			map[models.Queue]int{
				models.QueueDebits: 20, models.QueueSweeps: 20, models.QueueCheckout: 70, models.QueueWebhooks: 1500,
			},
		},
		"webhooks only": {
			[]*asynq.ServerInfo{
				server("a", 7, 1000, models.QueueWebhooks), server("a", 8, 1000, models.QueueWebhooks),
				server("b", 7, 1000, models.QueueWebhooks),
			}, 3, map[models.Queue]int{models.QueueWebhooks: 3000},
		},
		"separate workers": {
			[]*asynq.ServerInfo{server("a", 7, 100, models.QueueCheckout), server("b", 7, 4, models.QueueSweeps)},
			2, map[models.Queue]int{models.QueueCheckout: 100, models.QueueSweeps: 4},
		},
		"containers with one host name": {
			[]*asynq.ServerInfo{server("a", 1, 30, models.QueueDebits), server("a", 1, 30, models.QueueDebits)},
			2, map[models.Queue]int{models.QueueDebits: 60},
		},
	} {
		f := newFleet(nil)
		for _, q := range models.Queues {
			if f.slots(q) != defaultSlots[q] || f.isAbsent(q) {
				t.Errorf("%s: before the first count %s has %d slots; absent: %t", name, q, f.slots(q), f.isAbsent(q))
			}
		}
		f.record(tt.servers)
		if got := f.perWorker(time.Second); got != tt.workers*time.Second {
			t.Errorf("%s: a worker polls every %s, want %ds", name, got, tt.workers)
		}
		for _, q := range models.Queues {
			want, isServed := tt.slots[q]
			if want = cmp.Or(want, defaultSlots[q]); f.slots(q) != want || f.isAbsent(q) == isServed {
				t.Errorf("%s: %s has %d slots, want %d; absent: %t", name, q, f.slots(q), want, f.isAbsent(q))
			}
		}
	}
}

// A dispatcher that shuts down does not wait for a count while Redis hangs.
func TestCountEndsWithItsContext(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: localtest.SilentAddress(t)})
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newFleet(client).count(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the count ended with %v", err)
	}
}
