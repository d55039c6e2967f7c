package queue

import (
	"context"
	"errors"
	"testing"
	"time"

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
