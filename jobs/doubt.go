package jobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"partnerbilling/jobs/rail"
)

// doubtEvery is the least time between two log lines about a rail that gives no final answer: in an outage every row would
// say the same.
const doubtEvery = time.Second

// doubts tells the log why a rail gives no final answer. It is safe for concurrent use.
type doubts struct {
	mu   sync.Mutex
	last time.Time
}

// note is called with every answer. Nothing found is as it may be.
func (d *doubts) note(ctx context.Context, log *slog.Logger, now time.Time, key string, call railCall, r rail.Result) {
	if r.Status.Final() || r.Status == rail.NotFound || !d.tells(now) {
		return
	}
	log.WarnContext(ctx, "the rail gives no final answer", "key", key, "call", call.String(), "status", r.Status.String(), "detail", r.Detail)
}

func (d *doubts) tells(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.last) < doubtEvery {
		return false
	}
	d.last = now
	return true
}
