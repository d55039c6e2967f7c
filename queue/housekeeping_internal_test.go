package queue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/queue/queuetest"
)

// commandLog records the names of a client's commands.
type commandLog struct {
	mu    sync.Mutex
	names []string
}

// add is a queuetest.CommandHook.
func (l *commandLog) add(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	l.mu.Lock()
	l.names = append(l.names, cmd.Name())
	l.mu.Unlock()
	return next(ctx, cmd)
}

// Looks for expired leases overlap, and reach back to any time at first and once in a while. A look
// that was not complete is made up for by the next.
func TestReclaimsReachBack(t *testing.T) {
	t.Parallel()
	var r reclaims
	began := time.Unix(1_700_000_000, 0)
	for _, tt := range []struct {
		after    time.Duration // since began
		within   time.Duration
		complete bool
	}{
		{0, models.AnyTime, false},
		{time.Second, models.AnyTime, true},
		{2 * time.Second, time.Second + reclaimOverlap, true},
		{12 * time.Second, 10*time.Second + reclaimOverlap, false},
		{13 * time.Second, 11*time.Second + reclaimOverlap, true},
		{60 * time.Second, 47*time.Second + reclaimOverlap, true},
		{61 * time.Second, models.AnyTime, true},
		{62 * time.Second, time.Second + reclaimOverlap, true},
	} {
		now := began.Add(tt.after)
		within := r.within(now)
		if within != tt.within {
			t.Errorf("after %s: within %s, want %s", tt.after, within, tt.within)
		}
		if tt.complete {
			r.done(now, within)
		}
	}
}

// Loss detection costs two commands while nothing is lost. A loss of all data, or of one marker,
// registers the queues again.
func TestDetectLossIsCheap(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Start(t).URL)
	d := NewDispatcher(modelstest.Open(t), client, DispatcherConfig{Log: slog.New(slog.DiscardHandler)})
	commands := &commandLog{}
	client.AddHook(queuetest.CommandHook(commands.add))
	for _, lose := range []func(){
		func() {}, // a first start
		func() { client.FlushAll(t.Context()) },
		func() { client.Del(t.Context(), asynqQueuesKey, markerKey(models.Queues[0])) },
	} {
		lose()
		if err := d.detectLoss(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := client.SCard(t.Context(), asynqQueuesKey).Result(); err != nil || int(n) != len(models.Queues) {
			t.Errorf("%d queues are registered, %v", n, err)
		}
		commands.names = nil
		if err := d.detectLoss(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"mget", "info"}; !slices.Equal(commands.names, want) {
			t.Errorf("the commands are %s, want %s", commands.names, want)
		}
	}
}
