package main

import (
	"testing"
	"time"

	"partnerbilling/deploy/local"
	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue/queuetest"
)

// debitsKey is in the slot of the queue that carries batches.
const debitsKey = "{debits}"

// The master dies with tasks that its replica lacks. Each row is debited once all the same.
func TestSentinelFailsOver(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	group := queuetest.Sentinels(t)
	f := newFleet(t, modelstest.DSN(t), "SVC_REDIS_URL", group.URL())
	f.start(models.BehaviourPays)
	f.submit(10)
	f.awaitSome()
	old, err := group.Master(t.Context())
	f.check(err)
	replica := group.Servers()[1]
	f.check(group.Detach(t.Context(), replica))
	f.submit(5)
	old.Redis.Kill()
	died := time.Now()
	slowest := f.submit(5)
	_, err = group.AwaitFailover(t.Context(), old)
	f.check(err)
	t.Logf("promoted after %s; the slowest submission took %s", time.Since(died), slowest)
	f.requireSettled()
}

// A master dies with tasks that its replica lacks, and later the queue's slot moves under load.
func TestClusterFailsOverAndMovesASlot(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	cluster := queuetest.Cluster(t)
	f := newFleet(t, modelstest.DSN(t), "SVC_REDIS_URL", cluster.URL())
	f.start(models.BehaviourPays)
	f.submit(10)
	f.awaitSome()
	old, err := cluster.Master(t.Context(), debitsKey)
	f.check(err)
	replica, err := cluster.Replica(t.Context(), old)
	f.check(err)
	f.check(cluster.Detach(t.Context(), replica))
	f.submit(5)
	old.Redis.Kill()
	died := time.Now()
	slowest := f.submit(5)
	master, err := cluster.AwaitFailover(t.Context(), debitsKey, old)
	f.check(err)
	t.Logf("promoted after %s; the slowest submission took %s", time.Since(died), slowest)
	f.requireSettled()
	f.submit(10)
	f.awaitSome()
	f.check(cluster.MoveSlot(t.Context(), debitsKey, f.otherMaster(cluster, master)))
	f.requireSettled()
}

// otherMaster returns a master of the Cluster other than one.
func (f *fleet) otherMaster(cluster *local.RedisCluster, one *local.Servers) *local.Servers {
	f.Helper()
	for _, key := range []string{"{checkout}", "{webhooks}", "{sweeps}"} {
		master, err := cluster.Master(f.Context(), key)
		f.check(err)
		if master != one {
			return master
		}
	}
	f.Fatal("one master has all queues")
	return nil
}

func (f *fleet) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}
