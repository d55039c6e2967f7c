// Package queuetest gives tests a private Redis, and control over it. Each server is a process of
// its own, so that FLUSHALL, a stop or a kill does not affect other tests. It ends with the test,
// even if the test process is killed.
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

// urlEnv names the environment variable with the redis:// URL of the server that Redis uses instead
// of a private one.
const urlEnv = "SVC_TEST_REDIS_URL"

// Server is a private Redis without persistence. It is empty after each start.
type Server struct {
	// URL is the redis:// URL with the password. It stays the same across stops and starts.
	URL string

	t      testing.TB
	server *local.Server
}

// Redis returns the redis:// URL of an empty private Redis. If SVC_TEST_REDIS_URL is set, it
// returns that URL and flushes its database before and after the test: such tests cannot run in
// parallel.
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

// Start starts a private Redis. Tests that only need its URL call Redis.
func Start(t testing.TB) *Server {
	t.Helper()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutPostgres: true})
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	stop(t, servers)
	return &Server{URL: servers.RedisURL, t: t, server: servers.Redis}
}

// Sentinels starts a master with a replica under three Sentinels, which fail over after half a
// second without an answer.
func Sentinels(t testing.TB) *local.SentinelGroup {
	t.Helper()
	group, err := local.TempSentinels(t.Context(), 1, 500*time.Millisecond, nil)
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	stop(t, group)
	return group
}

// Cluster starts a Redis Cluster of three masters with a replica each, which fails over after half
// a second without an answer.
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

// Stop shuts the server down with local.Fast. It does nothing if the server is stopped.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.server.Stop(context.Background(), local.Fast); err != nil {
		s.t.Errorf("queuetest: stop Redis: %v", err)
	}
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() { s.server.Kill() }

// Start starts the stopped or killed server again, empty, at the same URL.
func (s *Server) Start() {
	s.t.Helper()
	if err := s.server.Start(context.Background()); err != nil {
		s.t.Errorf("queuetest: start Redis: %v", err)
	}
}

// Client returns a client of the server at the URL. It is closed at the end of the test.
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

func flush(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := Client(t, url).FlushDB(ctx).Err(); err != nil {
		t.Fatalf("queuetest: flush: %v", err)
	}
}
