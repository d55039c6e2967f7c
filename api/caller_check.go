package api

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"partnerbilling/models"
)

const (
	// maxCheckAge is the longest time from one check of a caller to the next, at the default
	// interval. A read that takes long, or a client that reads slowly, delays the next check
	// further.
	maxCheckAge = 15 * time.Second
	// recheckMargin is the part of maxCheckAge for the delay of a check that is due, such as the
	// wait for a slot.
	recheckMargin          = time.Second
	defaultRecheckInterval = maxCheckAge - recheckMargin
	// recheckTimeout bounds one repeated check.
	recheckTimeout = 5 * time.Second
)

// callerCheck repeats the checks of a long-polling or streaming request: of its token, client,
// address, scope and Site. It is not safe for concurrent use.
type callerCheck struct {
	server        *Server
	route         *Route
	authorization []string
	address       netip.Addr
	site          models.SiteID // zero for a route without a Site
	checked       time.Time     // when the last check began
}

// callerCheck returns the check of this request's caller, which last ran when the request began.
func (r *Request) callerCheck() *callerCheck {
	return &callerCheck{r.server, r.route, r.headers("Authorization"), r.address, r.Site.ID, r.began}
}

// untilDue returns the time until the next check is due, or maxPollInterval if it is due already.
func (c *callerCheck) untilDue() time.Duration {
	due := c.server.recheckInterval - time.Since(c.checked)
	if due <= 0 {
		return maxPollInterval
	}
	return due
}

// repeatIfDue repeats the check once Config.RecheckInterval has passed since the last one.
func (c *callerCheck) repeatIfDue(ctx context.Context) error {
	if time.Since(c.checked) < c.server.recheckInterval {
		return nil
	}
	return c.repeat(ctx)
}

// repeat returns the refusal if the caller would be refused now. It ignores other errors, such as
// an unavailable Postgres: the next check comes after the usual interval.
func (c *callerCheck) repeat(ctx context.Context) error {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	var refusal *Error
	if err := c.check(ctx); errors.As(err, &refusal) {
		return refusal
	}
	c.checked = started
	return nil
}

// check authenticates the caller, and checks its scope and its Site without the cache of Sites.
func (c *callerCheck) check(ctx context.Context) error {
	principal, err := c.server.authenticateHeaders(ctx, c.authorization, c.address)
	if err != nil {
		return err
	}
	if err := c.route.permit(principal); err != nil {
		return err
	}
	if c.site.IsZero() {
		return nil
	}
	_, err = c.server.sites.sites.Site(ctx, principal.OrganisationID, c.site)
	return siteError(err)
}
