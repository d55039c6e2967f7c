package queue_test

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

var freezes = flag.Int("freezes", 2,
	"how often TestTasksRunAfterFrozenConnections freezes the connections to each server")

// After all connections to Postgres, Redis or both freeze (stay open and never answer), a new task
// runs within 30 s. The flag -freezes sets the number of repetitions.
func TestTasksRunAfterFrozenConnections(t *testing.T) {
	for name, frozen := range map[string]struct{ postgres, redis bool }{
		"Postgres": {postgres: true}, "Redis": {redis: true}, "both": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := modelstest.DSN(t)
			postgres, throughPostgres := modelstest.Wire(t, dsn)
			redis, throughRedis := modelstest.Wire(t, queuetest.Start(t).URL)
			var took []time.Duration
			partner := modelstest.Connect(t, dsn)
			f := &fleet{T: t, store: partner, site: modelstest.Site(t, partner), ran: make(chan models.TaskID, 10_000)}
			worker := &fleet{T: t, store: modelstest.Connect(t, throughPostgres), ran: f.ran}
			client, err := queue.ConnectURL(throughRedis)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			worker.redis = client
			worker.serve(worker)
			worker.background(worker.dispatcher().Run)
			for range *freezes {
				postgres.Release() // abandoned sessions would exhaust the server
				redis.Release()
				f.await(f.submit(50)) // opens the connections of every loop
				if frozen.postgres {
					postgres.FreezeOpen()
				}
				if frozen.redis {
					redis.FreezeOpen()
				}
				began := time.Now()
				f.await(f.submit(1))
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			t.Logf("a new task ran after %s", took)
			if longest := took[len(took)-1]; longest > 30*time.Second {
				t.Errorf("a new task ran only after %s", longest)
			}
		})
	}
}

// While Redis accepts connections and never answers, each command ends within a bounded time, even
// if its context has no deadline.
func TestEveryCommandEndsOnFrozenConnections(t *testing.T) {
	t.Parallel()
	wire, url := modelstest.Wire(t, queuetest.Start(t).URL)
	client, err := queue.ConnectURL(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	wire.Freeze()
	errs := make(chan error)
	const commands = 100 // more than the connections of the pool
	for range commands {
		go func() { errs <- client.Incr(context.Background(), "n").Err() }()
	}
	limit := time.After(25 * time.Second)
	for range commands {
		select {
		case err := <-errs:
			if err == nil {
				t.Error("a command succeeded")
			}
		case <-limit:
			t.Fatal("a command does not end")
		}
	}
	wire.Thaw()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
