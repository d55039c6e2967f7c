package queue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/queue/queuetest"
)

// heldPolls is a hook that holds the polls of Asynq servers until they are released.
type heldPolls struct {
	held    chan struct{} // receives a value for each poll that is held
	release chan struct{}
}

func (h heldPolls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h heldPolls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" && strings.HasSuffix(fmt.Sprint(args[3]), ":pending") {
			select {
			case h.held <- struct{}{}:
			case <-h.release:
			}
			<-h.release
		}
		return next(ctx, cmd)
	}
}

func (h heldPolls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A shutdown cancels the runs although the polls of all Asynq servers hang.
func TestShutdownDoesNotWaitForPolls(t *testing.T) {
	t.Parallel()
	const servers = 3 // of checkout payments, of webhooks and of the other queues
	client := queuetest.Client(t, queuetest.Start(t).URL)
	polls := heldPolls{held: make(chan struct{}), release: make(chan struct{})}
	release := sync.OnceFunc(func() { close(polls.release) })
	defer release()
	server := NewServer(client, Jobs{}, ServerConfig{ShutdownTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	server.gated.AddHook(polls)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for range servers {
		select {
		case <-polls.held:
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

// heldCommand is a hook that holds a command until it is released.
type heldCommand struct {
	name    string
	held    chan struct{} // receives a value when the command is first held
	release chan struct{}
}

func (h heldCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h heldCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == h.name {
			select {
			case h.held <- struct{}{}:
			default: // it was held before
			}
			<-h.release
		}
		return next(ctx, cmd)
	}
}

func (h heldCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A shutdown ends in time even if Redis does not answer the servers that deregister, and reports
// that they have not ended. They deregister last.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Start(t).URL)
	deregistration := heldCommand{name: "zrem", held: make(chan struct{}, 1), release: make(chan struct{})}
	release := sync.OnceFunc(func() { close(deregistration.release) })
	defer release()
	server := NewServer(client, Jobs{}, ServerConfig{
		ShutdownTimeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	server.gated.AddHook(deregistration) // a hook of client is not one of gated
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	go func() { done <- server.Shutdown() }()
	select {
	case <-deregistration.held:
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
