package jobs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"partnerbilling/jobs/rail"
)

// railLogInterval is the minimum time between two log lines of one job about answers of the rail
// that are not final. During an outage every row would log the same line.
const railLogInterval = time.Second

// railLog logs why the rail gives no final answer, at most once in railLogInterval. It is safe for
// concurrent use.
type railLog struct {
	mu   sync.Mutex
	last time.Time // of the last line
}

// answer logs an answer of the rail that is not final. NotFound is expected and not logged.
func (l *railLog) answer(
	ctx context.Context, log *slog.Logger, now time.Time, key string, call railCall, r rail.Result,
) {
	if r.Status.Final() || r.Status == rail.NotFound || !l.isDue(now) {
		return
	}
	log.WarnContext(ctx, "the rail gives no final answer",
		"key", key, "call", call.String(), "status", r.Status.String(), "detail", r.Detail)
}

// isDue reports whether a line may be logged now, and if so notes the time.
func (l *railLog) isDue(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last) < railLogInterval {
		return false
	}
	l.last = now
	return true
}
