package queue_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"partnerbilling/queue"
)

func TestServerRefusesUnknownClients(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	server := queue.NewServer(ring, queue.Jobs{}, queue.ServerConfig{Log: slog.New(slog.DiscardHandler)})
	if err := server.Start(); err == nil || !strings.Contains(err.Error(), "*redis.Ring") {
		t.Errorf("error %v", err)
	}
}
