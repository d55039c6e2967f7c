package jobs

import (
	"context"
	"fmt"

	"partnerbilling/models"
)

// ResumeDebits is the job that ends a pause of an organisation's debits: it makes the postponed
// tasks due, in bounded steps. After a crash its task runs again and continues.
type ResumeDebits struct {
	Store *models.Store
}

// Run implements queue.Job.
func (r *ResumeDebits) Run(ctx context.Context, task models.Task) error {
	for n := sweepLimit; n >= sweepLimit; {
		var err error
		if n, err = r.Store.WakeDebits(ctx, task.ID, sweepLimit); err != nil {
			return fmt.Errorf("jobs: resume debits: %w", err)
		}
	}
	return r.Store.FinishTask(ctx, task.ID)
}
