// Package queuetest gives tests a Redis of their own, and control over it. Each server is a private process, so that
// FLUSHALL, a stop or a kill in one test is nothing to another; it starts in milliseconds and ends with the
// test, also if the test process is killed.
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

// urlEnv is the redis:// URL of a server to use instead of private ones.
const urlEnv = "SVC_TEST_REDIS_URL"

// Server is a private Redis without persistence: it is empty after each start.
type Server struct {
	// URL is the redis:// URL with the password; it stays the same over stops and starts.
	URL string

	t      testing.TB
	server *local.Server
}

// Redis returns the redis:// URL of an empty Redis of the test's own. With SVC_TEST_REDIS_URL set it is that
// one, whose database is flushed before and after the test: such tests cannot run in parallel.
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

// Start starts a private Redis for tests that stop, kill and start it.
func Start(t testing.TB) *Server {
	t.Helper()
	servers, err := local.Temp(t.Context(), local.Options{Ephemeral: true, WithoutPostgres: true})
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	t.Cleanup(func() {
		if err := servers.Stop(context.Background()); err != nil { // the test's own context has ended
			t.Errorf("queuetest: stop Redis: %v", err)
		}
	})
	return &Server{URL: servers.RedisURL, t: t, server: servers.Redis}
}

// Stop stops the server in an orderly way; it does nothing if the server is stopped.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.server.Stop(context.Background(), local.Fast); err != nil {
		s.t.Errorf("queuetest: stop Redis: %v", err)
	}
}

// Kill kills the server with SIGKILL.
func (s *Server) Kill() { s.server.Kill() }

// Start starts the stopped or killed server again, empty and at the same URL.
func (s *Server) Start() {
	s.t.Helper()
	if err := s.server.Start(context.Background()); err != nil {
		s.t.Errorf("queuetest: start Redis: %v", err)
	}
}

// Client returns a client that is closed with the test.
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

// Waiting is how many tasks of a queue wait in Redis for their time: Asynq's own retries, and members of bundles that come again.
func Waiting(t testing.TB, client *redis.Client, queue string) int {
	t.Helper()
	var waiting int64
	for _, set := range []string{"retry", "scheduled"} {
		n, err := client.ZCard(t.Context(), "asynq:{"+queue+"}:"+set).Result()
		if err != nil {
			t.Fatalf("queuetest: %v", err)
		}
		waiting += n
	}
	return int(waiting)
}

func flush(t testing.TB, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := Client(t, url).FlushDB(ctx).Err(); err != nil {
		t.Fatalf("queuetest: flush: %v", err)
	}
}
