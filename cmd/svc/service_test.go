package main

import (
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A process whose worker has not ended in time leaves the client of Redis open, since Asynq panics
// once that is closed.
func TestServiceLeavesRedisOpenToABusyWorker(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		p := program{stdout: io.Discard, stderr: io.Discard}
		s, err := p.newService(Config{DatabaseURL: "postgres://unused", RedisURL: "redis://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		s.busy = busy
		if err := s.close(); err != nil {
			t.Error(err)
		}
		open := !errors.Is(s.redis.Ping(t.Context()).Err(), redis.ErrClosed)
		if open != busy {
			t.Errorf("busy %t: the client is open: %t", busy, open)
		}
		_ = s.redis.Close()
	}
}
