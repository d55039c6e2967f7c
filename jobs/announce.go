package jobs

import (
	"context"
	"fmt"

	"partnerbilling/models"
)

// Announce is the job that writes the webhook event of a settled batch, or of a row whose outcome
// was corrected.
type Announce struct {
	Store *models.Store
	// Notify is called with the task that delivers the event. It must not block. If it is nil, the
	// delivery starts when a dispatcher polls the outbox.
	Notify func([]models.TaskID)
}

// Run implements queue.Job.
func (a *Announce) Run(ctx context.Context, task models.Task) error {
	delivery, err := a.Store.Announce(ctx, task.ID)
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	if !delivery.IsZero() && a.Notify != nil {
		a.Notify([]models.TaskID{delivery})
	}
	return nil
}
