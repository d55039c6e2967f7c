package queue

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
)

// poll starts Asynq's poll of an empty queue through the gate.
func poll(t *testing.T, g *idleGate, queue models.Queue) chan error {
	cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 4, pendingKey(string(queue)), "paused", "active", "lease")
	done := make(chan error, 1)
	process := g.ProcessHook(func(context.Context, redis.Cmder) error { return redis.Nil })
	go func() { done <- process(t.Context(), cmd) }()
	return done
}

func TestIdleGateWaitsForItsWakeUp(t *testing.T) {
	t.Parallel()
	g := newIdleGate(models.Queues)
	g.maxIdle = time.Hour
	if err := <-poll(t, g, models.QueueSweeps); !errors.Is(err, redis.Nil) { // not gated
		t.Errorf("poll: %v", err)
	}
	debits := poll(t, g, models.QueueDebits)
	g.wake(string(models.QueueDebits))
	<-debits
	checkout, webhooks := poll(t, g, models.QueueCheckout), poll(t, g, models.QueueWebhooks)
	g.wake(string(models.QueueWebhooks))
	if err := <-webhooks; !errors.Is(err, redis.Nil) {
		t.Errorf("poll: %v", err)
	}
	g.wake(string(models.QueueWebhooks)) // before the poll waits
	<-poll(t, g, models.QueueWebhooks)
	select {
	case <-checkout:
		t.Error("another queue's wake-up woke checkout")
	default:
	}
	g.open()
	<-checkout
	<-poll(t, g, models.QueueWebhooks)
}

// A failed poll is not repeated at once, whether or not the queue is gated.
func TestIdleGateWaitsAfterAFailedPoll(t *testing.T) {
	t.Parallel()
	full := errors.New("OOM command not allowed when used memory > 'maxmemory'")
	g := newIdleGate(models.Queues)
	g.maxIdle = time.Hour
	process := g.ProcessHook(func(context.Context, redis.Cmder) error { return full })
	done := make(chan error, 1)
	for _, q := range []models.Queue{models.QueueDebits, models.QueueCheckout} {
		g.wake(string(q)) // does not end the wait after a failure
		go func() {
			cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 4, pendingKey(string(q)), "paused", "active", "lease")
			done <- process(t.Context(), cmd)
		}()
	}
	// Other commands do not wait, so that finished tasks are recorded.
	finish := redis.NewCmd(t.Context(), "evalsha", "sha", 2, "asynq:{debits}:active", "lease")
	if err := process(t.Context(), finish); !errors.Is(err, full) {
		t.Errorf("another command: %v", err)
	}
	select {
	case err := <-done:
		t.Errorf("the poll returned at once: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	g.open()
	for range 2 {
		if err := <-done; !errors.Is(err, full) {
			t.Errorf("poll: %v", err)
		}
	}
	if n := counterValue(t, g.faults); n != 3 {
		t.Errorf("%v errors counted, want 3", n)
	}
}

func TestIsFaultIgnoresExpectedErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nil: false, redis.Nil: false, context.Canceled: false, context.DeadlineExceeded: true, io.EOF: true,
		redisError("NOSCRIPT No matching script."):                          false,
		redisError("READONLY You can't write against a read only replica."): true,
	} {
		if isFault(err) != want {
			t.Errorf("%v is a fault: %v", err, !want)
		}
	}
}

// redisError is an error answer of Redis.
type redisError string

func (e redisError) Error() string { return string(e) }

func (e redisError) RedisError() {}

// counterValue returns the value of a counter.
func counterValue(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}
