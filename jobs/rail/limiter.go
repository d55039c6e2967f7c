package rail

import (
	"context"

	"partnerbilling/models"
)

// Limiter spaces the requests to a gateway. One that keeps its count in a place shared by all workers makes the
// limit that of the fleet.
type Limiter interface {
	// Wait returns nil once one request may go out. An error, as when ctx ends, means that it must not. The
	// organisation is the one that is paid, so that a limiter can share fairly; it is zero for look-ups and
	// cancellations, which settle what is in doubt.
	Wait(ctx context.Context, organisation models.OrganisationID) error
}

// unlimited is the Limiter of those who have none.
type unlimited struct{}

func (unlimited) Wait(context.Context, models.OrganisationID) error { return nil }
