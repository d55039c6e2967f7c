package jobs

import (
	"context"
	"fmt"

	"partnerbilling/models"
)

// Announce writes the event of a batch that has settled, or of a row whose outcome was corrected.
type Announce struct {
	Store *models.Store
	// Notify is told of the event's delivery. It must not wait. Nil: the delivery starts when a dispatcher looks.
	Notify func([]models.TaskID)
}

// Run handles one task.
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
