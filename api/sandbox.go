package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"partnerbilling/api/strictjson"
	"partnerbilling/api/web/console"
	"partnerbilling/models"
)

// Sandbox configures a sandbox: an environment in which partners try the service with simulated
// customers.
type Sandbox struct {
	// Clock enables /sandbox/clock. A request to that route moves the time of the whole service, so
	// it suits only a service with a single user.
	Clock bool
	// Loopback lets webhooks go to loopback addresses.
	Loopback bool
	// Faults lets the console inject faults into the sandbox rail.
	Faults bool
	// Links are the one-time sign-in links of the console; nil for none.
	Links *console.SignInLinks
}

// maxClockStep is the largest step by which a request moves the clock.
const maxClockStep = 400 * 24 * time.Hour

// sandbox handles the routes that simulate customers and time.
type sandbox struct{ store *models.Store }

// signup lets a generated customer accept the newest invitation of the customerReference in the
// path.
func (s *sandbox) signup(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "behaviour")
	behaviour := readBehaviour(body)
	if err := r.BodyError(body); err != nil {
		return err
	}
	link, err := s.store.Customer(ctx, r.Site.ID, r.Param())
	if err != nil {
		return customerError(err)
	}
	party, err := newSandboxParty(ctx, s.store, behaviour)
	if err != nil {
		return err
	}
	signup, err := s.store.CompleteLink(ctx, link.ID, party)
	if errors.Is(err, models.ErrLinkTaken) { // a repeated call too: each call generates another party
		e := Refuse(SignupTaken, "")
		e.Faults[0].Message = "The customer is linked already."
		return e
	}
	if err != nil {
		return signupError(err)
	}
	link.State, link.LinkedAt = signup.State, signup.LinkedAt
	return r.JSON(http.StatusOK, link.Summary())
}

// clockData is the service time on the wire.
type clockData struct {
	Now models.Millis `json:"now"`
	// AdvancedMs is the lead over the database's time, in ms. readClock always sets it, and
	// moveClock never does.
	AdvancedMs *int64 `json:"advancedMs,omitempty"`
}

// readClock answers with the service time and its lead over the database's time.
func (s *sandbox) readClock(ctx context.Context, r *Request) error {
	now, advanced, err := s.store.Clock(ctx)
	if err != nil {
		return err
	}
	ms := advanced.Milliseconds()
	return r.JSON(http.StatusOK, clockData{now, &ms})
}

// moveClock advances the service time, and settles the batches that became overdue.
func (s *sandbox) moveClock(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "advanceMs")
	advance := body.RequiredInt("advanceMs", strictjson.Between(0, maxClockStep.Milliseconds()))
	if err := r.BodyError(body); err != nil {
		return err
	}
	now, err := s.store.AdvanceClock(ctx, time.Duration(advance)*time.Millisecond)
	if errors.Is(err, models.ErrClockRange) {
		return RefuseField(InvalidField, "advanceMs", "must not move the clock more than 100 years ahead in all")
	}
	if err != nil {
		return err
	}
	s.settleOverdue(ctx)
	return r.JSON(http.StatusOK, clockData{Now: now})
}

// settleOverdue settles the batches whose deadline the clock has passed, so that no later read
// shows them in progress. If an error ends it early, the workers' sweep settles the other batches.
func (s *sandbox) settleOverdue(ctx context.Context) {
	for {
		if _, err := s.store.CloseOverdueBatch(ctx); err != nil { // ErrNotFound: none is left to settle
			return
		}
	}
}
