package queue_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/queue"
	"partnerbilling/queue/queuetest"
)

// heldCommand is a hook that delays one command until it is released.
type heldCommand struct {
	name    string
	release chan struct{}
}

func (h heldCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h heldCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == h.name {
			<-h.release
		}
		return next(ctx, cmd)
	}
}

func (h heldCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A shutdown ends in time even if Redis never answers the deregistration of an Asynq server.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Start(t).URL)
	deregistration := heldCommand{name: "zrem", release: make(chan struct{})}
	client.AddHook(deregistration)
	defer close(deregistration.release)
	server := queue.NewServer(client, queue.Jobs{}, queue.ServerConfig{
		ShutdownTimeout: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); server.Shutdown() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the shutdown does not end")
	}
}

func TestServerRefusesUnknownClients(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	server := queue.NewServer(ring, queue.Jobs{}, queue.ServerConfig{Log: slog.New(slog.DiscardHandler)})
	if err := server.Start(); err == nil || !strings.Contains(err.Error(), "*redis.Ring") {
		t.Errorf("error %v", err)
	}
}
