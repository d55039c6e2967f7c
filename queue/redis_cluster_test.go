package queue_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// One master that evicts keys makes the whole Cluster unsafe.
func TestCheckRedisChecksEveryMaster(t *testing.T) {
	t.Parallel()
	client, err := queue.ConnectURL(queuetest.Cluster(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := queue.CheckRedis(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		t.Fatalf("the client is a %T", client)
	}
	for _, q := range models.Queues {
		master, err := cluster.MasterForKey(t.Context(), "{"+string(q)+"}")
		if err != nil {
			t.Fatal(err)
		}
		set := func(ctx context.Context, policy string) {
			if err := master.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set(t.Context(), "allkeys-lru")
		err = queue.CheckRedis(t.Context(), client)
		if err == nil || !strings.Contains(err.Error(), "noeviction") ||
			!strings.Contains(err.Error(), master.Options().Addr) {
			t.Errorf("the master of %s evicts: %v", q, err)
		}
		set(t.Context(), "noeviction")
	}
}
