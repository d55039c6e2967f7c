package queue

import (
	"context"
	"sync"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

// extendInterval is the time between two lease extensions. Each extension concerns tasks that were
// enqueued one to two intervals ago, well within models.ClaimLease. Most tasks are finished by then
// and need none.
const extendInterval = time.Second

// enqueuedTasks holds the tasks that Redis has accepted and whose claims have not been extended. It
// is safe for concurrent use.
type enqueuedTasks struct {
	mu                sync.Mutex
	current, previous []models.Task // enqueued in the current interval, and in the one before
}

// add adds tasks to the current interval.
func (e *enqueuedTasks) add(tasks []models.Task) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = append(e.current, tasks...)
}

// rotate removes and returns the tasks of the previous interval. The current interval becomes the
// previous one, and a new interval begins.
func (e *enqueuedTasks) rotate() []models.Task {
	e.mu.Lock()
	defer e.mu.Unlock()
	due := e.previous
	e.previous, e.current = e.current, nil
	return due
}

// extendLeases extends the leases of the previous interval's tasks to models.QueuedLease. A task
// whose lease is not extended is dispatched again when its claim expires. That does no harm.
func (d *Dispatcher) extendLeases(ctx context.Context) error {
	tasks := d.enqueued.rotate()
	if len(tasks) == 0 {
		return nil
	}
	return d.store.ConfirmDispatched(ctx, tasks)
}

// extendRemaining extends the leases of the tasks of both intervals. The dispatcher calls it at its
// end.
func (d *Dispatcher) extendRemaining(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	for range 2 { // the previous interval, and the current one
		if err := d.extendLeases(ctx); err != nil {
			d.cfg.Log.WarnContext(ctx, "cannot extend the leases of enqueued tasks; they are dispatched again",
				logs.Outage(err), "error", err)
		}
	}
}
