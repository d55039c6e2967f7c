package queue

import (
	"context"
	"sync"
	"time"

	"partnerbilling/models"
)

// confirmEvery is how often tasks are confirmed that were sent one to two such times ago, well within models.ClaimLease: most are
// done by then, which saves the confirmation, and those that are not are confirmed together.
const confirmEvery = time.Second

// unconfirmed are tasks that Redis has taken, and whose claims alone protect them so far.
type unconfirmed struct {
	mu         sync.Mutex
	fresh, old []models.Task // sent since the last confirmation, and before it
}

func (u *unconfirmed) add(tasks []models.Task) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fresh = append(u.fresh, tasks...)
}

// age returns the old ones, and makes the fresh ones old.
func (u *unconfirmed) age() []models.Task {
	u.mu.Lock()
	defer u.mu.Unlock()
	old := u.old
	u.old, u.fresh = u.fresh, nil
	return old
}

// confirm gives the tasks that were sent a while ago the lease of queued tasks. What cannot be confirmed goes out again when its
// claim has run out, which costs a look.
func (d *Dispatcher) confirm(ctx context.Context) (bool, error) {
	tasks := d.unconfirmed.age()
	if len(tasks) == 0 {
		return false, nil
	}
	return false, d.store.ConfirmDispatched(ctx, tasks)
}

// confirmRest confirms all when the dispatcher ends.
func (d *Dispatcher) confirmRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseAfter)
	defer cancel()
	for range 2 { // the old, and the fresh
		if _, err := d.confirm(ctx); err != nil {
			d.cfg.Log.WarnContext(ctx, "tasks that have gone out go out again, since they could not be confirmed", "error", err)
		}
	}
}
