package rail

import (
	"context"

	"partnerbilling/models"
)

// Limiter limits the rate of requests to a gateway. A limiter that all workers share limits the
// whole fleet.
type Limiter interface {
	// Take waits until requests of the organisation may be made, and returns how many of n, as
	// Rail.Admit does.
	Take(ctx context.Context, organisation models.OrganisationID, n int) int
}

// Unlimited admits every request at once. Rails without a rate limit embed it.
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
