package rail

import (
	"context"

	"partnerbilling/models"
)

// Limiter spaces the requests to a gateway. One that keeps its count in a place shared by all workers makes the
// limit that of the fleet.
type Limiter interface {
	// Take waits for turns and takes n of an organisation's at most; see Rail.Admit, which it is.
	Take(ctx context.Context, organisation models.OrganisationID, n int) int
}

// Unlimited is the Admit of rails that take requests at any rate.
type Unlimited struct{}

// Admit implements Rail: all may be made now.
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
