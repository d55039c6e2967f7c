package rail

import (
	"context"

	"partnerbilling/models"
)

// Limiter spaces the requests to a gateway. A limiter whose count all workers share limits the fleet as a whole.
type Limiter interface {
	// Take admits up to n of an organisation's requests, as Rail.Admit does.
	Take(ctx context.Context, organisation models.OrganisationID, n int) int
}

// Unlimited admits every request at once. Rails that take requests at any rate embed it.
type Unlimited struct{}

// Admit implements Rail.
func (Unlimited) Admit(ctx context.Context, _ models.OrganisationID, n int) int {
	if ctx.Err() != nil {
		return 0
	}
	return max(n, 0)
}

// Take implements Limiter.
func (u Unlimited) Take(ctx context.Context, organisation models.OrganisationID, n int) int {
	return u.Admit(ctx, organisation, n)
}
