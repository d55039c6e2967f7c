package rail

import (
	"context"

	"partnerbilling/models"
)

// Limiter spaces the requests to a gateway. One that keeps its count in a place shared by all workers makes the
// limit that of the fleet.
type Limiter interface {
	// Take waits until requests may go out, and returns how many of n may: at least one, or 0 if ctx ended first. The
	// organisation is the one that is paid, so that a limiter can share fairly; it is zero for look-ups and
	// cancellations, which settle what is in doubt.
	Take(ctx context.Context, organisation models.OrganisationID, n int) int
}

// unlimited is the Limiter of those who have none.
type unlimited struct{}

func (unlimited) Take(_ context.Context, _ models.OrganisationID, n int) int { return n }
