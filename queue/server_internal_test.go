package queue

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
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

// stopLog is a log that calls onStop for each Asynq server that begins to stop.
type stopLog struct{ onStop func() }

func (l stopLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Stopping processor")) {
		l.onStop()
	}
	return len(line), nil
}

// A shutdown stops all Asynq servers at once, each of which waits for its poll. A hanging Redis
// then delays the cancellation of the runs by one poll only.
func TestShutdownStopsServersConcurrently(t *testing.T) {
	t.Parallel()
	const servers = 3 // of checkout payments, of webhooks and of the other queues
	client := queuetest.Client(t, queuetest.Start(t).URL)
	polls := heldPolls{held: make(chan struct{}), release: make(chan struct{})}
	var stopping atomic.Int64
	release := sync.OnceFunc(func() { close(polls.release) })
	defer release()
	log := stopLog{func() {
		if stopping.Add(1) == servers {
			release()
		}
	}}
	server := NewServer(client, Jobs{}, ServerConfig{
		ShutdownTimeout: 200 * time.Millisecond,
		Log:             slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
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
	done := make(chan struct{})
	go func() { defer close(done); server.Shutdown() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Errorf("%d of %d servers stop while their polls hang", stopping.Load(), servers)
		release()
		<-done
	}
}
