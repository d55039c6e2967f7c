// Package queuetest gives tests a private Redis, and control over it. Each server is a process of
// its own, so that FLUSHALL, a stop or a kill does not affect other tests. The server ends with the
// test, on Linux even if the test process is killed. A helper that fails makes the test fail.
package queuetest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"partnerbilling/deploy/local"
)

// urlEnv names an environment variable. If set, it holds the redis:// URL of a server that the
// function Redis uses instead of a private one.
const urlEnv = "SVC_TEST_REDIS_URL"

// Server is a private Redis without persistence. It is empty after each start.
type Server struct {
	// URL is the redis:// URL with the password. It stays the same across stops and starts.
	URL string

	t      testing.TB
	server *local.Server
}

// Redis returns the redis:// URL of an empty private Redis. If SVC_TEST_REDIS_URL is set, it
// returns the URL in that variable, and flushes the database there before and after the test. Tests
// that share this database cannot run in parallel.
func Redis(t testing.TB) string {
	t.Helper()
	url := os.Getenv(urlEnv)
	if url == "" {
		return Start(t).URL
	}
	flush(t, url)
	t.Cleanup(func() { flush(t, url) })
	return url
}

// Start starts a private Redis, which stops at the end of the test. Tests that only need its URL
// call Redis.
func Start(t testing.TB) *Server {
	t.Helper()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutPostgres: true})
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	stop(t, servers)
	return &Server{URL: servers.RedisURL, t: t, server: servers.Redis}
}

// Sentinels starts a master with one replica under three Sentinels. They fail over when the master
// has not answered for half a second. All stop at the end of the test.
func Sentinels(t testing.TB) *local.SentinelGroup {
	t.Helper()
	group, err := local.TempSentinels(t.Context(), 1, 500*time.Millisecond, nil)
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	stop(t, group)
	return group
}

// Cluster starts a Redis Cluster of three masters with a replica each. A replica takes over when
// its master has not answered for half a second. All stop at the end of the test.
func Cluster(t testing.TB) *local.RedisCluster {
	t.Helper()
	cluster, err := local.TempCluster(t.Context(), 3, 500*time.Millisecond, nil)
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	stop(t, cluster)
	return cluster
}

// stop stops the servers at the end of the test.
func stop(t testing.TB, servers interface{ Stop(context.Context) error }) {
	t.Cleanup(func() {
		if err := servers.Stop(context.Background()); err != nil { // the test's context has ended
			t.Errorf("queuetest: stop Redis: %v", err)
		}
	})
}

// Stop stops the server in an orderly way. It does nothing if the server is stopped already.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.server.Stop(context.Background(), local.Fast); err != nil {
		s.t.Errorf("queuetest: stop Redis: %v", err)
	}
}

// Kill kills the server with SIGKILL and waits for its end.
func (s *Server) Kill() { s.server.Kill() }

// Start starts the stopped or killed server again, empty, at the same URL.
func (s *Server) Start() {
	s.t.Helper()
	if err := s.server.Start(context.Background()); err != nil {
		s.t.Errorf("queuetest: start Redis: %v", err)
	}
}

// Client returns a client of the server at a redis:// URL. The client is closed at the end of the
// test.
func Client(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() }) // fails only if the test has closed it
	return client
}

// Delayed returns the number of tasks of a queue that wait in Redis until they are due: those in
// Asynq's set of retries and in its set of scheduled tasks.
func Delayed(t testing.TB, client *redis.Client, queue string) int {
	t.Helper()
	var delayed int64
	for _, set := range []string{"retry", "scheduled"} {
		n, err := client.ZCard(t.Context(), "asynq:{"+queue+"}:"+set).Result()
		if err != nil {
			t.Fatalf("queuetest: %v", err)
		}
		delayed += n
	}
	return int(delayed)
}

// flush removes all keys from the database of the URL.
func flush(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := Client(t, url).FlushDB(ctx).Err(); err != nil {
		t.Fatalf("queuetest: flush: %v", err)
	}
}
