package jobs

import (
	"context"
	"testing"
	"time"

	"partnerbilling/models"
)

// The claims of a busy organisation are not made with those of others, which they could delay.
func TestBusyOrganisationDelaysNoOther(t *testing.T) {
	t.Parallel()
	d := NewDeliverWebhook(Config{})
	claimed, release := make(chan struct{}), make(chan struct{})
	d.claims.busy.Call = func(_ context.Context, claims []models.WebhookClaim) ([]models.WebhookClaimed, error) {
		close(claimed)
		<-release
		return make([]models.WebhookClaimed, len(claims)), nil
	}
	d.claims.calm.Call = func(_ context.Context, claims []models.WebhookClaim) ([]models.WebhookClaimed, error) {
		return make([]models.WebhookClaimed, len(claims)), nil
	}
	busy, calm := models.OrganisationID{1}, models.OrganisationID{2}
	for range busyAbove {
		d.running.begin(busy)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(t.Context(), models.Task{ID: models.TaskID{1}, OrganisationID: busy}) }()
	select {
	case <-claimed:
	case <-time.After(10 * time.Second):
		t.Fatal("the claim of the busy organisation is not made apart")
	}
	if err := d.Run(t.Context(), models.Task{ID: models.TaskID{2}, OrganisationID: calm}); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range busyAbove {
		d.running.end(busy)
	}
	if len(d.running.n) != 0 {
		t.Errorf("deliveries are still counted: %v", d.running.n)
	}
}
