package queue

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/queue/queuetest"
)

// A shutdown cancels the runs although the polls of all Asynq servers hang.
func TestShutdownDoesNotWaitForPolls(t *testing.T) {
	t.Parallel()
	const servers = 3 // of checkout payments, of webhooks and of the other queues
	client := queuetest.Client(t, queuetest.Start(t).URL)
	server := NewServer(client, Jobs{}, ServerConfig{ShutdownTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	polls, release := queuetest.Hold(server.gated, func(cmd redis.Cmder) bool {
		args := cmd.Args()
		return cmd.Name() == "evalsha" && strings.HasSuffix(fmt.Sprint(args[3]), ":pending")
	})
	defer release()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for range servers {
		select {
		case <-polls:
		case <-time.After(10 * time.Second):
			t.Fatal("an Asynq server does not poll")
		}
	}
	done := make(chan bool, 1)
	go func() { done <- server.Shutdown() }()
	select {
	case <-server.runCtx.Done():
	case <-time.After(30 * time.Second):
		t.Error("the runs are not cancelled while the polls hang")
	}
	release()
	if !<-done {
		t.Error("the servers have not ended")
	}
}

// A shutdown ends in time even if Redis does not answer the servers that deregister, and reports
// that they have not ended. They deregister last.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Start(t).URL)
	server := NewServer(client, Jobs{}, ServerConfig{
		ShutdownTimeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	deregistrations, release := queuetest.Hold(server.gated, func(cmd redis.Cmder) bool { return cmd.Name() == "zrem" })
	defer release()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	go func() { done <- server.Shutdown() }()
	select {
	case <-deregistrations:
	case <-time.After(30 * time.Second):
		t.Fatal("no server deregisters")
	}
	select {
	case ended := <-done:
		if ended {
			t.Error("the servers have ended")
		}
	case <-time.After(30 * time.Second):
		t.Error("the shutdown does not end")
		release()
		<-done
	}
}
