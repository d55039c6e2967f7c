package api

import (
	"context"
	"errors"
	"time"

	"partnerbilling/models"
)

const (
	// defaultRecheck is how long a check counts for a request that outlives it. With the longest pause between two looks
	// that is 15 s.
	defaultRecheck = 15*time.Second - lastPause
	// recheckTimeout bounds one recheck.
	recheckTimeout = 5 * time.Second
)

// standing is what a request that outlives its checks was let in by: its token, and with it the client, the scope and the
// Site. It is for one goroutine.
type standing struct {
	server        *Server
	route         *Route
	authorization []string
	site          models.SiteID // zero: the route has none
	checked       time.Time
}

// standing is that of this request, checked when it began.
func (r *Request) standing() *standing {
	return &standing{r.server, r.route, r.headers("Authorization"), r.Site.ID, r.began}
}

// recheckIfDue is recheck, if the last check was long enough ago.
func (s *standing) recheckIfDue(ctx context.Context) error {
	if time.Since(s.checked) < s.server.recheckEvery {
		return nil
	}
	return s.recheck(ctx)
}

// recheck returns the refusal of a request that would not be let in any more. Whether it would cannot be told while
// Postgres is away: then it stays.
func (s *standing) recheck(ctx context.Context) error {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	var refusal *Error
	if err := s.check(ctx); errors.As(err, &refusal) {
		return refusal
	}
	s.checked = started
	return nil
}

func (s *standing) check(ctx context.Context) error {
	principal, err := s.server.recognise(ctx, s.authorization)
	if err != nil {
		return err
	}
	if err := s.route.permit(principal); err != nil {
		return err
	}
	if s.site.IsZero() {
		return nil
	}
	_, err = s.server.sites.sites.Site(ctx, principal.OrganisationID, s.site)
	return siteError(err)
}
