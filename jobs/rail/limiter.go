package rail

import (
	"context"

	"partnerbilling/models"
)

// Limiter limits the rate of requests to a gateway. All workers together keep one rate if they
// share a limiter.
type Limiter interface {
	// Take waits until the organisation may make requests, and returns how many of n it may make:
	// at least 1, or 0 if ctx ends first or n is below 1. See Rail.Admit.
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
