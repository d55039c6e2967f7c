package jobs

import (
	"context"
	"fmt"

	"partnerbilling/models"
)

// WakeDebits is the job that makes the tasks due that a pause of an organisation's debits
// postponed. It works in bounded steps. It runs after the pause, and during the pause after an
// operator has cancelled restored work. After a crash its task runs again and continues.
type WakeDebits struct {
	Store *models.Store
}

// Run implements queue.Job.
func (w *WakeDebits) Run(ctx context.Context, task models.Task) error {
	for n := sweepLimit; n >= sweepLimit; {
		var err error
		if n, err = w.Store.WakeDebits(ctx, task.ID, sweepLimit); err != nil {
			return fmt.Errorf("jobs: wake debits: %w", err)
		}
	}
	return w.Store.FinishTask(ctx, task.ID)
}
