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

// look is a look of Asynq's at a queue that is empty, through the hook.
func look(t *testing.T, r *rester, queue models.Queue) chan error {
	cmd := redis.NewCmd(t.Context(), "evalsha", "sha", 4, pendingKey(string(queue)), "paused", "active", "lease")
	done := make(chan error, 1)
	process := r.ProcessHook(func(context.Context, redis.Cmder) error { return redis.Nil })
	go func() { done <- process(t.Context(), cmd) }()
	return done
}

func TestRester(t *testing.T) {
	t.Parallel()
	r := newRester(Names())
	r.atMost = time.Hour
	if err := <-look(t, r, models.QueueSweeps); !errors.Is(err, redis.Nil) { // shares its server: does not rest
		t.Errorf("looked: %v", err)
	}
	checkout, webhooks := look(t, r, models.QueueCheckout), look(t, r, models.QueueWebhooks)
	r.hear(string(models.QueueWebhooks))
	if err := <-webhooks; !errors.Is(err, redis.Nil) {
		t.Errorf("looked: %v", err)
	}
	r.hear(string(models.QueueWebhooks)) // before somebody rests
	<-look(t, r, models.QueueWebhooks)
	select {
	case <-checkout:
		t.Error("another queue's word woke checkout")
	default:
	}
	r.end()
	<-checkout
	<-look(t, r, models.QueueWebhooks)
}

// A look that fails is not repeated at once, whatever Redis says and whoever shares the server.
func TestResterRestsAfterAFailure(t *testing.T) {
	t.Parallel()
	full := errors.New("OOM command not allowed when used memory > 'maxmemory'")
	r := newRester(Names())
	r.atMost = time.Hour
	process := r.ProcessHook(func(context.Context, redis.Cmder) error { return full })
	done := make(chan error, 1)
	for _, q := range []models.Queue{models.QueueDebits, models.QueueCheckout} {
		r.hear(string(q)) // a word is of no use then
		go func() {
			done <- process(t.Context(), redis.NewCmd(t.Context(), "evalsha", "sha", 4, pendingKey(string(q)), "paused", "active", "lease"))
		}()
	}
	// Whatever is no look goes on: a task that has ended must be told of.
	if err := process(t.Context(), redis.NewCmd(t.Context(), "evalsha", "sha", 2, "asynq:{debits}:active", "lease")); !errors.Is(err, full) {
		t.Errorf("another command: %v", err)
	}
	select {
	case err := <-done:
		t.Errorf("looked again at once: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.end()
	for range 2 {
		if err := <-done; !errors.Is(err, full) {
			t.Errorf("looked: %v", err)
		}
	}
	if n := counted(t, r.failed); n != 3 {
		t.Errorf("%v errors counted, want 3", n)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		nil: false, redis.Nil: false, context.Canceled: false, context.DeadlineExceeded: true, io.EOF: true,
		proto("NOSCRIPT No matching script."): false, proto("READONLY You can't write against a read only replica."): true,
	} {
		if isFault(err) != want {
			t.Errorf("%v is a fault: %v", err, !want)
		}
	}
}

// proto is an answer of Redis that is an error.
type proto string

func (e proto) Error() string { return string(e) }

func (e proto) RedisError() {}

// counted is a counter's value.
func counted(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}
